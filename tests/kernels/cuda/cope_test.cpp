// Contextual positions on the GPU against plain loops.
#include "sape2/kernels/cuda.h"

#include "heads_place.h"
#include "kernels/cope_reference.h"

namespace sape2::kernels::test {
namespace {

using CopeProblem = kernels::testing::Problem<double>;
using CopeNumbers = kernels::testing::CopeResult<double>;

struct Setting {
  std::int64_t images, heads, tokens, head_size, positions;
  bool packed = false, inside = false;
  double gate_scale = 0;  // 0: as the scale
  double spread = 1;
};

std::ostream& operator<<(std::ostream& to, const Setting& s) {
  return to << s.images << "x" << s.heads << " N" << s.tokens << " d" << s.head_size << " M"
            << s.positions << (s.packed ? " packed" : "") << (s.inside ? " inside" : "");
}

/// Numbers that the type can hold.
CopeProblem problem_of(const Setting& s, DType type) {
  Random random(17 + s.tokens + s.head_size);
  const std::int64_t size = s.images * s.heads * s.tokens * s.head_size;
  CopeProblem p;
  p.shape = {s.images, s.heads, 1, s.tokens, 0, s.head_size};
  p.scale = static_cast<float>(1 / std::sqrt(double(s.head_size)));
  p.inside = s.inside;
  p.positions = static_cast<int>(s.positions);
  p.gate_scale = {s.gate_scale == 0 ? p.scale : static_cast<float>(s.gate_scale)};
  p.q = rounded(random.normal(size, s.spread), type);
  p.k = rounded(random.normal(size, s.spread), type);
  p.v = rounded(random.normal(size, 1), type);
  p.dout = rounded(random.normal(size, 1), type);
  p.k_x = rounded(random.normal(s.positions * s.head_size, 0.3), DType::float32);
  return p;
}

CopeNumbers run_on_gpu(const CopeProblem& p, DType type, bool packed) {
  const Place place{p.shape, packed}, single{p.shape, false};
  const std::size_t size = p.q.size();
  const auto each = [&](auto visit) {
    for (std::int64_t b = 0; b < p.shape.images; ++b)
      for (std::int64_t h = 0; h < p.shape.heads; ++h)
        for (std::int64_t n = 0; n < p.shape.tokens(); ++n) visit(b, h, n);
  };
  Numbers given(place.size());
  for (int tensor = 0; tensor < 3; ++tensor) {
    const Numbers& from = tensor == 0 ? p.q : tensor == 1 ? p.k : p.v;
    each([&](std::int64_t b, std::int64_t h, std::int64_t n) {
      for (std::size_t c = 0; c < std::size_t(p.shape.head_size); ++c)
        given[place.at(tensor, b, h, n) + c] = from[single.at(0, b, h, n) + c];
    });
  }
  const Held qkv(given, type), dout(p.dout, type), table(p.k_x, DType::float32);
  const Held out(size, type), gradients(place.size(), type), dtable(p.k_x.size(), DType::float32);
  const Held softmax(2 * size / std::size_t(p.shape.head_size), DType::float32);
  const AttentionInputs inputs{p.shape,
                               type,
                               static_cast<float>(p.scale),
                               place.const_view(qkv, 0, type),
                               place.const_view(qkv, 1, type),
                               place.const_view(qkv, 2, type)};
  const CopeEncoding encoding{p.positions, table.floats(), static_cast<float>(p.gate_scale[0]),
                              p.inside};
  auto* const rows = static_cast<SoftmaxRow*>(softmax.data());
  const auto launch = [](const DeviceBytes& workspace) {
    return cuda::Launch{nullptr, workspace.data(), workspace.size()};
  };
  const DeviceBytes forward(cuda::cope_attention_workspace(inputs, encoding, false));
  cuda::cope_attention_forward(inputs, encoding, {single.view(out, 0, type), rows},
                               launch(forward));
  const DeviceBytes backward(cuda::cope_attention_workspace(inputs, encoding, true));
  cuda::cope_attention_backward(
      inputs, encoding, {single.const_view(out, 0, type), rows, single.const_view(dout, 0, type)},
      {place.view(gradients, 0, type), place.view(gradients, 1, type),
       place.view(gradients, 2, type)},
      dtable.floats(), launch(backward));
  must(cudaDeviceSynchronize());

  CopeNumbers result{out.read(), Numbers(size), Numbers(size), Numbers(size), dtable.read()};
  const Numbers all = gradients.read();
  for (int tensor = 0; tensor < 3; ++tensor) {
    Numbers& to = tensor == 0 ? result.dq : tensor == 1 ? result.dk : result.dv;
    each([&](std::int64_t b, std::int64_t h, std::int64_t n) {
      for (std::size_t c = 0; c < std::size_t(p.shape.head_size); ++c)
        to[single.at(0, b, h, n) + c] = all[place.at(tensor, b, h, n) + c];
    });
  }
  return result;
}

double norm_of_difference(const Numbers& a, const Numbers& b) {
  double sum = 0;
  for (std::size_t i = 0; i < b.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum);
}

/// float32: at most twice the error of the plain loops in float32. 16 bits: as near as they are
/// good, since each number is rounded on the way.
void expect_right(const Setting& setting, DType type) {
  SCOPED_TRACE(::testing::Message() << setting);
  const CopeProblem problem = problem_of(setting, type);
  const CopeNumbers exact = cope_reference(problem);
  const auto plain = cope_reference(kernels::testing::cast<float>(problem));
  const CopeNumbers ours = run_on_gpu(problem, type, setting.packed);
  const double rounding = norm_of_difference(exact.dv, Numbers(exact.dv.size()));
  const auto compare = [&](const char* name, const Numbers& got, const Numbers& wanted,
                           const std::vector<float>& formula, double factor) {
    const double size =
        std::max(norm_of_difference(wanted, Numbers(wanted.size())), 0.1 * rounding);
    const double plain_error = norm_of_difference(Numbers(formula.begin(), formula.end()), wanted);
    const double error = norm_of_difference(got, wanted);
    const double most = type == DType::float32    ? 2 * plain_error + 3e-6 * size
                        : type == DType::bfloat16 ? factor * 2e-2 * size
                                                  : factor * 3e-3 * size;
    EXPECT_TRUE(error <= most) << name << ": error " << error << " of " << size << ", plain "
                               << plain_error;
  };
  compare("out", ours.out, exact.out, plain.out, 1);
  compare("dq", ours.dq, exact.dq, plain.dq, 2);
  compare("dk", ours.dk, exact.dk, plain.dk, 2);
  compare("dv", ours.dv, exact.dv, plain.dv, 1);
  compare("dtable", ours.dtable, exact.dtable, plain.dtable, 3);

  const CopeNumbers again = run_on_gpu(problem, type, setting.packed);
  EXPECT_EQ(ours.out, again.out);
  EXPECT_EQ(ours.dq, again.dq);
  EXPECT_EQ(ours.dk, again.dk);
  EXPECT_EQ(ours.dv, again.dv);
  EXPECT_EQ(ours.dtable, again.dtable);
}

class CudaCope : public ::testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    if (!has_gpu()) GTEST_SKIP() << "there is no GPU here";
  }
};

TEST_P(CudaCope, FollowsTheFormula) {
  const Setting settings[] = {
      {2, 3, 64, 64, 64, true},
      {2, 2, 64, 32, 20},        // sums beyond the table
      {1, 2, 50, 16, 80, true},  // a table beyond the sums
      {1, 1, 1, 8, 2},
      {3, 1, 5, 24, 3, false, true, 0.7},
      {2, 2, 63, 64, 65, true, true},
      {1, 2, 65, 64, 64, true},
      {2, 1, 130, 80, 64},
      {1, 1, 200, 128, 30, true, false, -0.4},
      {1, 2, 257, 64, 100, true},
      {1, 1, 320, 32, 310},        // values outside of shared memory in float32
      {1, 1, 90, 10, 40},          // rows that are no multiples of 16 bytes
      {300, 1, 20, 16, 12, true},  // more heads than blocks
      {300, 1, 70, 8, 30},
      {45, 3, 66, 16, 64, true},              // one block a head, several tiles
      {1, 2, 64, 64, 64, true, false, 0, 6},  // gates that are all or nothing
  };
  for (const Setting& setting : settings) expect_right(setting, GetParam());
}

TEST_P(CudaCope, KeepsNotANumberInItsImage) {
  CopeProblem p = problem_of({2, 1, 70, 32, 16}, GetParam());
  p.q[3 * 32] = NAN;
  const CopeNumbers ours = run_on_gpu(p, GetParam(), false);
  const std::size_t image = p.q.size() / 2;
  EXPECT_TRUE(std::isnan(ours.out[3 * 32]));
  for (std::size_t i = image; i < 2 * image; ++i) {
    ASSERT_TRUE(std::isfinite(ours.out[i]));
    ASSERT_TRUE(std::isfinite(ours.dk[i]));
  }
}

TEST_P(CudaCope, TakesNoImages) {
  const CopeNumbers none = run_on_gpu(problem_of({0, 2, 9, 16, 4}, GetParam()), GetParam(), false);
  for (const double x : none.dtable) EXPECT_EQ(x, 0);
}

INSTANTIATE_TEST_SUITE_P(Types, CudaCope, ::testing::ValuesIn(kTypes));

}  // namespace
}  // namespace sape2::kernels::test
