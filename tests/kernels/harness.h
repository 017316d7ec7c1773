#pragma once

#include "sape2/kernels/attention.h"
#include "sape2/kernels/cope.h"

#include "cope_reference.h"
#include "reference.h"

#include <algorithm>
#include <random>
#include <thread>
#include <vector>

/// Runs the kernels on a Problem and compares arrays.
namespace sape2::kernels::testing {

/// As many std::threads as it is told, each with one contiguous range.
class ThreadExecutor final : public Executor {
 public:
  explicit ThreadExecutor(int threads) : threads_(threads) {}

  void parallel_for(std::int64_t count, const Body& body) const override {
    std::vector<std::thread> threads;
    for (int t = 0; t < threads_; ++t) {
      const std::int64_t begin = count * t / threads_;
      const std::int64_t end = count * (t + 1) / threads_;
      if (begin < end) threads.emplace_back([&body, begin, end] { body(begin, end); });
    }
    for (std::thread& thread : threads) thread.join();
  }

 private:
  int threads_;
};

inline ConstView const_view(const Shape& s, const void* data) {
  return {data, s.heads * s.tokens() * s.head_size, s.tokens() * s.head_size, s.head_size};
}
inline View view(const Shape& s, void* data) {
  return {data, s.heads * s.tokens() * s.head_size, s.tokens() * s.head_size, s.head_size};
}

inline AttentionInputs inputs_of(const Problem<float>& p) {
  return {p.shape,
          DType::float32,
          static_cast<float>(p.scale),
          const_view(p.shape, p.q.data()),
          const_view(p.shape, p.k.data()),
          const_view(p.shape, p.v.data())};
}

inline Encoding encoding_of(const Problem<float>& p) {
  return {p.source,
          p.span,
          p.positions,
          p.tables_per_head,
          p.gate_scale.data(),
          p.gate_offset.data(),
          {p.q_x.data(), p.q_y.data()},
          {p.k_x.data(), p.k_y.data()}};
}

inline Result<float> empty_result(const Problem<float>& p) {
  Result<float> r;
  r.out.resize(p.q.size());
  r.dq.resize(p.q.size()), r.dk.resize(p.q.size()), r.dv.resize(p.q.size());
  r.softmax.resize(2 * p.q.size() / p.shape.head_size);
  const std::size_t patches = p.sets() * p.shape.images * p.shape.heads * p.shape.patches();
  r.x.resize(patches * p.shape.cols), r.y.resize(patches * p.shape.rows);
  r.dx.resize(r.x.size()), r.dy.resize(r.y.size());
  r.dq_x.resize(p.q_x.size()), r.dq_y.resize(p.q_y.size());
  r.dk_x.resize(p.k_x.size()), r.dk_y.resize(p.k_y.size());
  r.dgate_scale.resize(p.shape.heads), r.dgate_offset.resize(p.shape.heads);
  r.dgain.resize(p.shape.heads);
  return r;
}

inline SoftmaxRow* softmax_of(Result<float>& r) {
  return reinterpret_cast<SoftmaxRow*>(r.softmax.data());
}

inline AttentionSaved saved_of(const Problem<float>& p, const Result<float>& r) {
  return {const_view(p.shape, r.out.data()), softmax_of(const_cast<Result<float>&>(r)),
          const_view(p.shape, p.dout.data())};
}

inline AttentionGradients gradients_of(const Problem<float>& p, Result<float>& r) {
  return {view(p.shape, r.dq.data()), view(p.shape, r.dk.data()), view(p.shape, r.dv.data())};
}

inline EncodingGradients encoding_gradients_of(Result<float>& r) {
  return {{r.dq_x.data(), r.dq_y.data()},
          {r.dk_x.data(), r.dk_y.data()},
          r.dgate_scale.data(),
          r.dgate_offset.data()};
}

/// Both stages (or plain attention), forward and backward.
inline Result<float> run_kernels(const Problem<float>& p, const Executor& executor) {
  Result<float> r = empty_result(p);
  const AttentionInputs inputs = inputs_of(p);
  const AttentionOutputs outputs{view(p.shape, r.out.data()), softmax_of(r)};
  if (!p.biased) {
    plain_attention_forward(inputs, outputs, executor);
    plain_attention_backward(inputs, saved_of(p, r), gradients_of(p, r), executor);
    return r;
  }
  const Encoding encoding = encoding_of(p);
  const Bias bias{p.gain.data(), p.inside};
  sape2_attention_forward(inputs, encoding, p.form, bias, outputs, executor);
  sape2_attention_backward(inputs, encoding, p.form, bias, saved_of(p, r), gradients_of(p, r),
                           encoding_gradients_of(r), r.dgain.data(), executor);
  return r;
}

/// Stage 2 alone.
inline Result<float> run_stage2_kernels(const Problem<float>& p, const Array<float>& x,
                                        const Array<float>& y, const Executor& executor) {
  Result<float> r = empty_result(p);
  const AttentionOutputs outputs{view(p.shape, r.out.data()), softmax_of(r)};
  const AxisVectors vectors{p.sets(), x.data(), y.data()};
  const Bias bias{p.gain.data(), p.inside};
  axis_bias_attention_forward(inputs_of(p), vectors, p.form, bias, outputs, executor);
  axis_bias_attention_backward(inputs_of(p), vectors, p.form, bias, saved_of(p, r),
                               gradients_of(p, r), {r.dx.data(), r.dy.data(), r.dgain.data()},
                               executor);
  return r;
}

/// Stage 1 alone.
inline Result<float> run_stage1_kernels(const Problem<float>& p, const Array<float>& dx,
                                        const Array<float>& dy, const Executor& executor) {
  Result<float> r = empty_result(p);
  const VectorInputs inputs{p.shape, DType::float32, const_view(p.shape, p.q.data()),
                            const_view(p.shape, p.k.data())};
  const Encoding encoding = encoding_of(p);
  sape2_vectors_forward(inputs, encoding, {r.x.data(), r.y.data()}, executor);
  sape2_vectors_backward(inputs, encoding, {dx.data(), dy.data()},
                         {view(p.shape, r.dq.data()), view(p.shape, r.dk.data())},
                         encoding_gradients_of(r), executor);
  return r;
}

inline CopeResult<float> run_cope_kernels(const Problem<float>& p, const Executor& executor) {
  const Array<float> zeros(p.q.size());
  CopeResult<float> r{zeros, zeros, zeros, zeros, Array<float>(p.k_x.size())};
  Array<float> softmax(2 * p.q.size() / p.shape.head_size);
  SoftmaxRow* rows = reinterpret_cast<SoftmaxRow*>(softmax.data());
  const CopeEncoding encoding{p.positions, p.k_x.data(), p.gate_scale[0], p.inside};
  cope_attention_forward(inputs_of(p), encoding, {view(p.shape, r.out.data()), rows}, executor);
  cope_attention_backward(
      inputs_of(p), encoding,
      {const_view(p.shape, r.out.data()), rows, const_view(p.shape, p.dout.data())},
      {view(p.shape, r.dq.data()), view(p.shape, r.dk.data()), view(p.shape, r.dv.data())},
      r.dtable.data(), executor);
  return r;
}

inline Array<double> random_normal(std::mt19937& generator, std::size_t count, double deviation) {
  std::normal_distribution<double> normal(0.0, deviation);
  Array<double> result(count);
  for (double& value : result) value = static_cast<double>(static_cast<float>(normal(generator)));
  return result;
}

/// Fills every array of a problem whose settings are made; all values are float32 numbers.
inline void fill(Problem<double>& p, std::mt19937& generator, double content, double table) {
  const std::size_t all = static_cast<std::size_t>(p.shape.images * p.shape.heads *
                                                   p.shape.tokens() * p.shape.head_size);
  p.q = random_normal(generator, all, content);
  p.k = random_normal(generator, all, content);
  p.v = random_normal(generator, all, 1.0);
  p.dout = random_normal(generator, all, 1.0);
  const std::size_t size = static_cast<std::size_t>((p.tables_per_head ? p.shape.heads : 1) *
                                                    p.positions * p.shape.head_size);
  p.q_x = p.q_y = p.k_x = p.k_y = {};
  if (p.source != Source::k) {
    p.q_x = random_normal(generator, size, table), p.q_y = random_normal(generator, size, table);
  }
  if (p.source != Source::q) {
    p.k_x = random_normal(generator, size, table), p.k_y = random_normal(generator, size, table);
  }
  const std::size_t heads = static_cast<std::size_t>(p.shape.heads);
  p.gain = random_normal(generator, heads, 1.0);
  p.gate_offset = random_normal(generator, heads, 1.0);
  p.gate_scale = random_normal(generator, heads, 0.5);
  for (double& s : p.gate_scale) {
    s = static_cast<float>((1.0 + s) / std::sqrt(static_cast<double>(p.shape.head_size)));
  }
}

/// Largest |a − b|; infinite where one is a NaN and the other not.
template <typename A, typename B>
double worst(const Array<A>& a, const Array<B>& b) {
  double result = a.size() == b.size() ? 0.0 : INFINITY;
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    const double difference = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    result = std::isnan(difference) ? INFINITY : std::max(result, difference);
  }
  return result;
}

template <typename A>
double largest(const Array<A>& a) {
  double result = 0.0;
  for (const A value : a) result = std::max(result, std::abs(static_cast<double>(value)));
  return result;
}

/// Root of the mean square of a − b.
template <typename A, typename B>
double spread(const Array<A>& a, const Array<B>& b) {
  double sum = a.size() == b.size() ? 0.0 : INFINITY;
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    const double difference = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    sum += std::isnan(difference) ? INFINITY : difference * difference;
  }
  return std::sqrt(sum / std::max<std::size_t>(1, a.size()));
}

}  // namespace sape2::kernels::testing
