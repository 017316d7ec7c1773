// Views, bfloat16, unwanted gradients, memory, hostile values and impossible parameters.
#include "sape2/base/error.h"

#include "harness.h"
#include "targets.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>

namespace sape2::kernels::testing {
namespace {

Problem<float> problem(Shape shape, Form form = Form::distance, Span span = Span::suffix,
                       Source source = Source::qk) {
  Problem<double> p;
  p.shape = shape;
  p.scale = 0.25;
  p.form = form;
  p.span = span;
  p.source = source;
  p.positions = static_cast<int>(2 * std::max(shape.rows, shape.cols) + 1);
  std::mt19937 generator(7);
  fill(p, generator, 1.0, 0.3);
  return cast<float>(p);
}

/// q, k and v as views of one (images, tokens, 3, heads, head_size) tensor.
TEST(Robustness, ReadsAndWritesStridedViews) {
  for_each_target([] {
    const Problem<float> p = problem({2, 3, 3, 4, 1, 10});
    const Result<float> expected = run_kernels(p, SerialExecutor());
    const std::int64_t tokens = p.shape.tokens(), heads = p.shape.heads, d = p.shape.head_size;
    const std::int64_t token_stride = 3 * heads * d, image_stride = tokens * token_stride;
    Array<float> qkv(static_cast<std::size_t>(p.shape.images * image_stride));
    Array<float> dqkv(qkv.size(), -7.0F);
    const auto strided = [&](Array<float>& a, int part) {
      return View{a.data() + part * heads * d, image_stride, d, token_stride};
    };
    const auto each = [&](const auto& body) {
      for (std::int64_t b = 0; b < p.shape.images; ++b) {
        for (std::int64_t h = 0; h < heads; ++h) {
          for (std::int64_t i = 0; i < tokens * d; ++i) {
            body(static_cast<std::size_t>((b * heads + h) * tokens * d + i),
                 static_cast<std::size_t>(b * image_stride + h * d + i / d * token_stride + i % d));
          }
        }
      }
    };
    const std::size_t part = static_cast<std::size_t>(heads * d);
    each([&](std::size_t dense, std::size_t at) {
      qkv[at] = p.q[dense], qkv[at + part] = p.k[dense], qkv[at + 2 * part] = p.v[dense];
    });
    AttentionInputs inputs = inputs_of(p);
    ConstView* views[3] = {&inputs.q, &inputs.k, &inputs.v};
    for (int m = 0; m < 3; ++m) {
      const View v = strided(qkv, m);
      *views[m] = {v.data, v.image_stride, v.head_stride, v.token_stride};
    }
    Result<float> r = empty_result(p);
    const Bias bias{p.gain.data(), p.inside};
    sape2_attention_forward(inputs, encoding_of(p), p.form, bias,
                            {view(p.shape, r.out.data()), softmax_of(r)}, SerialExecutor());
    EXPECT_EQ(worst(r.out, expected.out), 0.0);
    sape2_attention_backward(inputs, encoding_of(p), p.form, bias, saved_of(p, r),
                             {strided(dqkv, 0), strided(dqkv, 1), strided(dqkv, 2)},
                             encoding_gradients_of(r), r.dgain.data(), SerialExecutor());
    each([&](std::size_t dense, std::size_t at) {
      ASSERT_EQ(dqkv[at], expected.dq[dense]);
      ASSERT_EQ(dqkv[at + part], expected.dk[dense]);
      ASSERT_EQ(dqkv[at + 2 * part], expected.dv[dense]);
    });
  });
}

TEST(Robustness, GradientsMayBeUnwanted) {
  const Problem<float> p = problem({1, 2, 3, 4, 1, 8});
  Result<float> r = run_kernels(p, SerialExecutor());
  const Result<float> expected = r;
  std::fill(r.dv.begin(), r.dv.end(), 0.0F);
  sape2_attention_backward(inputs_of(p), encoding_of(p), p.form, {p.gain.data(), p.inside},
                           saved_of(p, r), {{}, {}, view(p.shape, r.dv.data())}, {}, nullptr,
                           SerialExecutor());
  EXPECT_EQ(worst(r.dv, expected.dv), 0.0);
  run_stage2_kernels(p, Array<float>(2 * 2 * 12 * 4), Array<float>(2 * 2 * 12 * 3),
                     SerialExecutor());
}

using Bits = std::uint16_t;

Bits bfloat16_of(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return static_cast<Bits>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

float float_of(Bits bits) {
  const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

Array<Bits> round_to_bfloat16(Array<float>& values) {
  Array<Bits> bits(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    bits[i] = bfloat16_of(values[i]);
    values[i] = float_of(bits[i]);
  }
  return bits;
}

Array<float> floats_of(const Array<Bits>& bits) {
  Array<float> result(bits.size());
  std::transform(bits.begin(), bits.end(), result.begin(), float_of);
  return result;
}

/// bfloat16 is a matter of loading and storing: sums are float32, so all that is lost is the
/// rounding of results (and of the output that the backward pass reads).
TEST(Robustness, Bfloat16RoundsOnlyResults) {
  for_each_target([] {
    for (const Form form : {Form::distance, Form::direct}) {
      Problem<float> p = problem({2, 2, 5, 7, 1, 24}, form);
      const Array<Bits> q = round_to_bfloat16(p.q), k = round_to_bfloat16(p.k),
                        v = round_to_bfloat16(p.v), dout = round_to_bfloat16(p.dout);
      const Result<double> exact = Reference<double>(cast<double>(p)).run();
      Array<Bits> out(q.size()), dq(q.size()), dk(q.size()), dv(q.size());
      Result<float> r = empty_result(p);
      AttentionInputs inputs = inputs_of(p);
      inputs.dtype = DType::bfloat16;
      inputs.q.data = q.data(), inputs.k.data = k.data(), inputs.v.data = v.data();
      const Bias bias{p.gain.data(), p.inside};
      sape2_attention_forward(inputs, encoding_of(p), p.form, bias,
                              {view(p.shape, out.data()), softmax_of(r)}, SerialExecutor());
      AttentionSaved saved = saved_of(p, r);
      saved.out.data = out.data(), saved.dout.data = dout.data();
      sape2_attention_backward(
          inputs, encoding_of(p), p.form, bias, saved,
          {view(p.shape, dq.data()), view(p.shape, dk.data()), view(p.shape, dv.data())},
          encoding_gradients_of(r), r.dgain.data(), SerialExecutor());
      constexpr double kHalfUlp = 1.0 / 256;
      EXPECT_LE(worst(floats_of(out), exact.out), kHalfUlp * largest(exact.out));
      EXPECT_LE(worst(floats_of(dq), exact.dq), 2 * kHalfUlp * largest(exact.dq));
      EXPECT_LE(worst(floats_of(dk), exact.dk), 2 * kHalfUlp * largest(exact.dk));
      EXPECT_LE(worst(floats_of(dv), exact.dv), 2 * kHalfUlp * largest(exact.dv));
      EXPECT_LE(worst(r.dk_x, exact.dk_x), kHalfUlp * largest(exact.dk_x));
      EXPECT_LE(worst(r.dgain, exact.dgain), kHalfUlp * (largest(exact.dgain) + 1));
    }
  });
}

bool has_nan(const Array<float>& a) {
  return std::any_of(a.begin(), a.end(), [](float value) { return std::isnan(value); });
}

/// NaN in, NaN out, and never a table row that is not there (the address sanitizer looks on).
TEST(Robustness, HostileValuesStayInBounds) {
  for_each_target([] {
    for (const float poison : {NAN, INFINITY, -INFINITY, 3e38F}) {
      for (const Span span : {Span::suffix, Span::between}) {
        for (const Form form : {Form::distance, Form::direct}) {
          // The second has more table rows than are compared one by one.
          for (const Shape shape : {Shape{1, 1, 3, 5, 1, 8}, Shape{1, 1, 2, 36, 0, 4}}) {
            for (int which = 0; which < 3; ++which) {
              Problem<float> p = problem(shape, form, span);
              Array<float>* arrays[3] = {&p.q, &p.k, &p.k_x};
              // In a table, the row that every line reads.
              const int row = span == Span::suffix ? 1 : (p.positions - 1) / 2;
              const std::size_t at = static_cast<std::size_t>(row * shape.head_size);
              (*arrays[which])[which == 2 ? at : arrays[which]->size() / 2] = poison;
              const Result<float> r = run_kernels(p, SerialExecutor());
              run_stage1_kernels(p, r.dx, r.dy, SerialExecutor());
              if (!std::isnan(poison)) continue;
              EXPECT_TRUE(has_nan(r.out));
              EXPECT_TRUE(has_nan(r.dq) && has_nan(r.dk) && has_nan(r.dv));
              p.gate_scale = {0.25F};
              p.k_x.resize(static_cast<std::size_t>(p.positions * shape.head_size));
              EXPECT_TRUE(has_nan(run_cope_kernels(p, SerialExecutor()).out));
            }
          }
        }
      }
    }
  });
}

/// Scratch memory is a matter of threads; heads and images only add partial sums of the tables.
TEST(Robustness, MemoryGrowsWithTokensTimesLines) {
  const auto peak = [](int side) {
    const Problem<float> p =
        problem({1, 2, side, side, 0, 64}, Form::distance, Span::suffix, Source::k);
    reset_scratch_peak();
    run_kernels(p, ThreadExecutor(2));
    return static_cast<double>(scratch_use().peak_bytes);
  };
  EXPECT_EQ(scratch_use().current_bytes, 0);
  const double half = peak(32), whole = peak(64);
  EXPECT_LT(whole, 60.0 * 1024 * 1024);
  // Four times the tokens, twice the lines: at most eight times the memory, not sixteen.
  EXPECT_LT(whole, 8.0 * half);
  EXPECT_EQ(scratch_use().current_bytes, 0);
}

template <typename Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Robustness, ImpossibleParametersGetOneSentence) {
  const Problem<float> p = problem({1, 1, 2, 2, 0, 4});
  Result<float> r = empty_result(p);
  const AttentionOutputs outputs{view(p.shape, r.out.data()), softmax_of(r)};
  const auto run = [&](const AttentionInputs& inputs, const Encoding& encoding) {
    return message_of([&] {
      sape2_attention_forward(inputs, encoding, p.form, {p.gain.data(), true}, outputs,
                              SerialExecutor());
    });
  };
  EXPECT_EQ(run(inputs_of(p), encoding_of(p)), "");
  AttentionInputs inputs = inputs_of(p);
  inputs.shape.head_size = 257;
  EXPECT_EQ(run(inputs, encoding_of(p)), "head_size is 257; expected a number from 1 to 256");
  inputs = inputs_of(p);
  inputs.k.data = nullptr;
  EXPECT_EQ(run(inputs, encoding_of(p)), "k is null; expected its data");
  inputs = inputs_of(p);
  inputs.scale = NAN;
  EXPECT_NE(run(inputs, encoding_of(p)).find("scale is"), std::string::npos);
  Encoding encoding = encoding_of(p);
  encoding.span = Span::between;
  encoding.positions = 4;
  EXPECT_EQ(run(inputs_of(p), encoding),
            "positions is 4; expected an odd number for the span between");
  EXPECT_EQ(message_of([] { use_simd_target("MMX"); }),
            "the SIMD target is \"MMX\"; expected one of simd_targets()");
}

}  // namespace
}  // namespace sape2::kernels::testing
