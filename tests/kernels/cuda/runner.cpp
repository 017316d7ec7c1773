#include "runner.h"

#include "sape2/kernels/cuda.h"

#include "device.h"
#include "numbers.h"

#include <memory>

namespace sape2::kernels::test {
namespace {

/// A (images, heads, tokens, head size) tensor on the device, alone or as one of three in a packed
/// one.
class DeviceTensor {
 public:
  DeviceTensor(const Shape& shape, DType type, bool packed, std::int64_t gap)
      : shape_(shape), type_(type), packed_(packed) {
    const std::int64_t n = shape.tokens(), d = shape.head_size;
    token_ = (packed ? 3 * shape.heads * d : d) + gap;
    head_ = packed ? d : n * token_;
    image_ = packed ? n * token_ : shape.heads * head_;
    bytes_ = std::make_unique<DeviceBytes>(shape.images * image_ * bytes_of(type));
  }
  void upload(const Numbers& numbers) {
    Numbers spread(bytes_->size() / bytes_of(type_), NAN);
    for_each([&](std::size_t from, std::size_t to) { spread[to] = numbers[from]; });
    bytes_->upload(encoded(spread, type_).data());
  }
  Numbers download() const {
    const auto spread = decoded(bytes_->download(), type_);
    Numbers numbers(shape_.images * shape_.heads * shape_.tokens() * shape_.head_size);
    for_each([&](std::size_t to, std::size_t from) { numbers[to] = spread[from]; });
    return numbers;
  }
  View view() const { return {bytes_->data(), image_, head_, token_}; }
  ConstView const_view() const { return {bytes_->data(), image_, head_, token_}; }

 private:
  template <class Use>
  void for_each(Use use) const {
    std::size_t index = 0;
    for (std::int64_t b = 0; b < shape_.images; ++b)
      for (std::int64_t h = 0; h < shape_.heads; ++h)
        for (std::int64_t t = 0; t < shape_.tokens(); ++t)
          for (std::int64_t c = 0; c < shape_.head_size; ++c)
            use(index++, b * image_ + h * head_ + t * token_ + c);
  }
  Shape shape_;
  DType type_;
  bool packed_;
  std::int64_t image_, head_, token_;
  std::unique_ptr<DeviceBytes> bytes_;
};

class DeviceNumbers {
 public:
  DeviceNumbers(std::size_t count, DType type = DType::float32)
      : bytes_(count * bytes_of(type)), type_(type) {}
  explicit DeviceNumbers(const Numbers& numbers, DType type = DType::float32)
      : DeviceNumbers(numbers.size(), type) {
    bytes_.upload(encoded(numbers, type).data());
  }
  void* data() const { return bytes_.data(); }
  float* floats() const { return static_cast<float*>(bytes_.data()); }
  Numbers download() const { return decoded(bytes_.download(), type_); }

 private:
  DeviceBytes bytes_;
  DType type_;
};

struct Run {
  Run(const Problem& problem, DType dtype, bool packed)
      : p(problem),
        type(dtype),
        q(p.shape, type, packed, p.gap),
        k(p.shape, type, packed, p.gap),
        v(p.shape, type, packed, p.gap),
        out(p.shape, type, false, p.gap),
        dout(p.shape, type, false, p.gap),
        dq(p.shape, type, false, p.gap),
        dk(p.shape, type, false, p.gap),
        dv(p.shape, type, packed, p.gap),
        softmax(2 * p.shape.images * p.shape.heads * p.shape.tokens()),
        gain(p.gain),
        gate_scale(p.gate_scale),
        gate_offset(p.gate_offset),
        dgain(p.shape.heads),
        dgate_scale(p.shape.heads),
        dgate_offset(p.shape.heads) {
    q.upload(p.q);
    k.upload(p.k);
    v.upload(p.v);
    dout.upload(p.dout);
    inputs = {p.shape,        type,  static_cast<float>(p.scale), q.const_view(), k.const_view(),
              v.const_view(), p.tf32};
    outputs = {out.view(), static_cast<SoftmaxRow*>(softmax.data())};
    saved = {out.const_view(), outputs.softmax, dout.const_view()};
    gradients = {dq.view(), dk.view(), dv.view()};
    bias = {p.has_gain ? gain.floats() : nullptr, p.inside};
  }

  /// Calls run(Launch) with as much workspace as it needs.
  template <class Call>
  void with_workspace(std::size_t bytes, Call call) {
    const DeviceBytes workspace(bytes);
    call(cuda::Launch{nullptr, workspace.data(), bytes});
    must(cudaDeviceSynchronize());
  }

  /// Who gives no gain asks for no gradient of it.
  float* wanted_dgain() const { return p.has_gain ? dgain.floats() : nullptr; }

  void plain() {
    with_workspace(cuda::plain_attention_workspace(inputs, false), [&](const cuda::Launch& launch) {
      cuda::plain_attention_forward(inputs, outputs, launch);
    });
    with_workspace(cuda::plain_attention_workspace(inputs, true), [&](const cuda::Launch& launch) {
      cuda::plain_attention_backward(inputs, saved, gradients, launch);
    });
  }

  void given(Solution& s) {
    const DeviceNumbers x(p.vectors[0], type), y(p.vectors[1], type);
    const DeviceNumbers dx(p.vectors[0].size(), type), dy(p.vectors[1].size(), type);
    const AxisVectors vectors{p.sets(), x.data(), y.data()};
    with_workspace(cuda::axis_bias_attention_workspace(inputs, vectors, p.form, false),
                   [&](const cuda::Launch& launch) {
                     cuda::axis_bias_attention_forward(inputs, vectors, p.form, bias, outputs,
                                                       launch);
                   });
    with_workspace(cuda::axis_bias_attention_workspace(inputs, vectors, p.form, true),
                   [&](const cuda::Launch& launch) {
                     cuda::axis_bias_attention_backward(
                         inputs, vectors, p.form, bias, saved, gradients,
                         {dx.data(), dy.data(), wanted_dgain()}, launch);
                   });
    if (p.has_gain) s.dgain = dgain.download();
    s.dvectors[0] = dx.download();
    s.dvectors[1] = dy.download();
  }

  /// `keeper`: whose forward call keeps the vectors and makes the softmax; null: its own.
  void sape2(Solution& s, bool keeps_vectors, Run* keeper = nullptr) {
    std::unique_ptr<DeviceNumbers> tables[2][2], dtables[2][2];
    for (int set = 0; set < p.sets(); ++set)
      for (int axis = 0; axis < 2; ++axis) {
        tables[set][axis] = std::make_unique<DeviceNumbers>(p.tables[set][axis]);
        dtables[set][axis] = std::make_unique<DeviceNumbers>(p.tables[set][axis].size());
      }
    Encoding encoding{p.source,
                      p.span,
                      p.positions,
                      p.tables_per_head,
                      gate_scale.floats(),
                      gate_offset.floats()};
    EncodingGradients wanted;
    wanted.dgate_scale = dgate_scale.floats();
    wanted.dgate_offset = dgate_offset.floats();
    for (int set = 0; set < p.sets(); ++set) {
      const bool from_q = set == 0 && p.source != Source::k;
      (from_q ? encoding.q_tables : encoding.k_tables) =
          Tables{tables[set][0]->floats(), tables[set][1]->floats()};
      (from_q ? wanted.q_tables : wanted.k_tables) =
          TableGradients{dtables[set][0]->floats(), dtables[set][1]->floats()};
    }
    const DeviceBytes vectors(
        keeps_vectors ? cuda::sape2_attention_stage1_bytes(inputs, encoding, p.form) : 0);
    const bool kept = vectors.size() > 0;
    if (kept) saved.stage1 = (keeper ? keeper : this)->outputs.stage1 = vectors.data();
    if (keeper) saved.softmax = keeper->saved.softmax;
    for (Run* run : {keeper, this})
      if (run != nullptr)
        with_workspace(cuda::sape2_attention_workspace(run->inputs, encoding, p.form, false,
                                                       run->outputs.stage1 != nullptr),
                       [&](const cuda::Launch& launch) {
                         cuda::sape2_attention_forward(run->inputs, encoding, p.form, run->bias,
                                                       run->outputs, launch);
                       });
    with_workspace(cuda::sape2_attention_workspace(inputs, encoding, p.form, true, kept),
                   [&](const cuda::Launch& launch) {
                     cuda::sape2_attention_backward(inputs, encoding, p.form, bias, saved,
                                                    gradients, wanted, wanted_dgain(), launch);
                   });
    if (p.has_gain) s.dgain = dgain.download();
    s.dgate_scale = dgate_scale.download();
    s.dgate_offset = dgate_offset.download();
    for (int set = 0; set < p.sets(); ++set)
      for (int axis = 0; axis < 2; ++axis) s.dtables[set][axis] = dtables[set][axis]->download();
  }

  const Problem& p;
  DType type;
  DeviceTensor q, k, v, out, dout, dq, dk, dv;
  DeviceNumbers softmax, gain, gate_scale, gate_offset, dgain, dgate_scale, dgate_offset;
  AttentionInputs inputs;
  AttentionOutputs outputs;
  AttentionSaved saved;
  AttentionGradients gradients;
  Bias bias;
};

}  // namespace

Problem rounded_problem(Problem problem, DType type) {
  for (auto* numbers : {&problem.q, &problem.k, &problem.v, &problem.dout, &problem.vectors[0],
                        &problem.vectors[1]})
    *numbers = rounded(*numbers, type);
  for (auto& set : problem.tables)
    for (auto& table : set) table = rounded(table, DType::float32);
  for (auto* numbers : {&problem.gain, &problem.gate_scale, &problem.gate_offset})
    *numbers = rounded(*numbers, DType::float32);
  problem.scale = static_cast<float>(problem.scale);
  return problem;
}

namespace {

Solution downloaded(Solution s, const Run& run) {
  s.out = run.out.download();
  s.dq = run.dq.download();
  s.dk = run.dk.download();
  s.dv = run.dv.download();
  const auto softmax = run.softmax.download();
  for (std::size_t i = 0; i < softmax.size(); i += 2)
    s.lse.push_back(softmax[i] + std::log(softmax[i + 1]));
  return s;
}

}  // namespace

Solution run_on_gpu(const Problem& problem, DType type, bool packed, bool keeps_vectors) {
  Run run(problem, type, packed);
  Solution s;
  if (!problem.has_bias) {
    run.plain();
  } else if (problem.has_tables) {
    run.sape2(s, keeps_vectors);
  } else {
    run.given(s);
  }
  return downloaded(s, run);
}

Solution run_moved_on_gpu(const Problem& problem, DType type, bool moves_together) {
  Problem apart = problem;
  apart.gap = 1;
  Run keeper(moves_together ? apart : problem, type, false);
  Run run(moves_together ? problem : apart, type, false);
  Solution s;
  run.sape2(s, true, &keeper);
  return downloaded(s, run);
}

}  // namespace sape2::kernels::test
