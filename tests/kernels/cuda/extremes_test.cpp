// What must hold whatever the numbers: equal patches, open gates, nothing at all, no numbers,
// infinite and nearly equal ones.
#include "attention_checks.h"

namespace sape2::kernels::test {
namespace {

class CudaExtremes : public GpuTest {};

TEST_P(CudaExtremes, EqualPatchesHaveNoNoise) {
  Random random(3);
  for (const auto [rows, cols, head_size] :
       {std::array{6, 7, 32}, {18, 19, 64}, {5, 40, 64}, {4, 64, 64}}) {
    Problem p;
    p.shape = {1, 2, rows, cols, 1, head_size};
    p.positions = default_positions(p);
    p = filled(p, random);
    const auto n = p.shape.tokens(), d = p.shape.head_size;
    for (std::int64_t head = 0; head < 2; ++head)
      for (std::int64_t token = 1; token < n; ++token)
        for (std::int64_t c = 0; c < d; ++c) {
          p.q[(head * n + token) * d + c] = p.q[(head * n + 1 + token % 2) * d + c];
          p.k[(head * n + token) * d + c] = p.k[head * n * d + c];
        }
    expect_right(p, GetParam(), false);
  }
}

TEST_P(CudaExtremes, OpenGatesCountPatches) {
  Random random(4);
  for (const auto [rows, cols, head_size] : {std::array{5, 9, 16}, {9, 20, 64}})
    for (const auto form : {Form::distance, Form::direct}) {
      Problem p;
      p.shape = {2, 2, rows, cols, 0, head_size};
      p.form = form;
      p.span = Span::between;
      p.positions = default_positions(p);
      p = filled(p, random);
      p.gate_scale.assign(2, 0);
      p.gate_offset.assign(2, INFINITY);
      const auto problem = rounded_problem(p, GetParam());
      const auto ours = run_on_gpu(problem, GetParam(), true);
      const auto exact = solve(problem);
      expect_near("out", ours.out, exact.out, tolerance(GetParam()));
      expect_near("dtable", ours.dtables[0][0], exact.dtables[0][0], 3 * tolerance(GetParam()));
      for (const double x : ours.dgate_offset) EXPECT_EQ(x, 0);
    }
}

TEST_P(CudaExtremes, NoImagesAndManyHeads) {
  Random random(5);
  Problem none;
  none.shape = {0, 3, 4, 4, 0, 32};
  none.positions = 5;
  EXPECT_TRUE(run_on_gpu(filled(none, random), GetParam(), false).out.empty());
  if (GetParam() != DType::bfloat16) return;
  Problem many;
  many.shape = {10001, 7, 1, 2, 0, 8};
  many.form = Form::direct;
  many.positions = 3;
  expect_right(filled(many, random), GetParam(), false);
}

TEST_P(CudaExtremes, NotANumberStaysInItsImage) {
  Random random(6);
  for (const auto [rows, cols, head_size] :
       {std::array{7, 5, 32}, {10, 10, 64}, {14, 14, 64}, {9, 20, 64}, {3, 64, 64}})
    for (const auto span : {Span::suffix, Span::between}) {
      Problem p;
      p.shape = {2, 1, rows, cols, 1, head_size};
      p.span = span;
      p.form = rows == cols && span == Span::between ? Form::direct : Form::distance;
      p.positions = default_positions(p);
      p = filled(p, random);
      p.q[3 * head_size] = NAN;
      p.k[5 * head_size] = NAN;
      const auto problem = rounded_problem(p, GetParam());
      const auto ours = run_on_gpu(problem, GetParam(), false);
      const std::size_t image = p.shape.tokens() * p.shape.head_size;
      EXPECT_TRUE(std::isnan(ours.out[3 * head_size]));
      EXPECT_TRUE(std::isnan(ours.dq[3 * head_size]));
      for (std::size_t i = image; i < 2 * image; ++i) {
        ASSERT_TRUE(std::isfinite(ours.out[i]));
        ASSERT_TRUE(std::isfinite(ours.dq[i]));
        ASSERT_TRUE(std::isfinite(ours.dk[i]));
      }
    }
}

// Gradients over distances go beyond what float16 holds.
TEST_P(CudaExtremes, NearlyEqualVectorsUnderLargeGradients) {
  Random random(8);
  struct Case {
    std::int64_t rows, cols, head_size;
    Source source = Source::k;
  };
  for (const auto [rows, cols, head_size, source] :
       {Case{6, 7, 32}, Case{8, 8, 64}, Case{18, 19, 64}, Case{5, 40, 64}, Case{9, 17, 128},
        Case{18, 19, 64, Source::qk}}) {
    Problem p;
    p.shape = {1, 2, rows, cols, 1, head_size};
    p.has_tables = false;
    p.source = source;
    p = filled(p, random);
    for (double& x : p.dout) x *= 1000;
    for (auto& axis : p.vectors)
      for (double& x : axis) x *= 2e-5;
    const auto problem = rounded_problem(p, GetParam());
    SCOPED_TRACE(described(problem));
    const auto ours = run_on_gpu(problem, GetParam(), false);
    for (const auto* gradients : {&ours.dq, &ours.dk, &ours.dvectors[0], &ours.dvectors[1]})
      for (const double x : *gradients) ASSERT_TRUE(std::isfinite(x));
  }
}

TEST_P(CudaExtremes, InfiniteValuesStayInTheirColumn) {
  Random random(9);
  for (const auto [rows, cols] : {std::array{9, 20}, {18, 19}, {5, 40}})
    for (const std::int64_t token : {3, 100}) {
      Problem p;
      p.shape = {1, 1, rows, cols, 1, 64};
      p.positions = default_positions(p);
      p = filled(p, random);
      p.v[token * 64 + 7] = INFINITY;
      const auto problem = rounded_problem(p, GetParam());
      SCOPED_TRACE(described(problem));
      const auto ours = run_on_gpu(problem, GetParam(), false);
      for (std::size_t i = 0; i < ours.out.size(); ++i)
        ASSERT_EQ(std::isfinite(ours.out[i]), i % 64 != 7) << i;
    }
}

/// Vectors of −∞ are masks: of every query some grid columns, and a grid row.
TEST_P(CudaExtremes, MaskedKeysHaveNoWeight) {
  Random random(10);
  for (const auto [rows, cols] : {std::array{6, 32}, {5, 20}, {4, 64}, {9, 16}})
    for (const bool has_gain : {false, true}) {
      Problem p;
      p.shape = {1, 2, rows, cols, 0, 64};
      p.form = Form::direct;
      p.has_tables = false;
      p.has_gain = has_gain;
      p.inside = false;
      p = filled(p, random);
      p.gain.assign(2, 1);
      const std::int64_t patches = 2 * p.shape.patches();
      for (std::int64_t i = 0; i < patches; ++i) {
        for (std::int64_t x = i % 3; x < cols; x += 3) p.vectors[0][i * cols + x] = -INFINITY;
        p.vectors[1][i * rows + i % rows] = -INFINITY;
      }
      const auto problem = rounded_problem(p, GetParam());
      SCOPED_TRACE(described(problem));
      const auto ours = run_on_gpu(problem, GetParam(), false), exact = solve(problem);
      const double most = tolerance(GetParam()), rounding = 0.1 * norm(exact.dv);
      expect_near("out", ours.out, exact.out, most);
      expect_near("dq", ours.dq, exact.dq, 2 * most, rounding);
      expect_near("dk", ours.dk, exact.dk, 2 * most, rounding);
      expect_near("dv", ours.dv, exact.dv, most);
    }
}

/// The softmax of heads in tiles begins as if logits were near 0: here they are far below or above,
/// or come to be so behind the first tile of keys.
TEST_P(CudaExtremes, LogitsFarFromZero) {
  Random random(11);
  for (const auto [first, rest] : {std::array{-40, -40}, {40, 40}, {-40, 40}, {40, -40}, {0, 20}})
    for (const auto [rows, cols] : {std::array{18, 20}, {16, 32}, {24, 40}})
      for (const int kind : {0, 1, 2}) {
        Problem p;
        p.shape = {1, 1, rows, cols, 0, 64};
        p.has_bias = kind > 0;
        p.has_tables = false;
        p.has_gain = false;
        p.form = kind == 1 ? Form::direct : Form::distance;
        p = filled(p, random);
        for (std::int64_t token = 0; token < p.shape.tokens(); ++token) {
          p.q[token * 64] = 8;  // the scale is 1/8
          p.k[token * 64] = token < 64 ? first : rest;
        }
        const auto problem = rounded_problem(p, GetParam());
        SCOPED_TRACE(described(problem));
        SCOPED_TRACE("logits centered " + std::to_string(first) + ", then " + std::to_string(rest));
        expect_near(run_on_gpu(problem, GetParam(), false), problem, GetParam());
      }
}

INSTANTIATE_TEST_SUITE_P(Types, CudaExtremes, all_types(), type_name);

}  // namespace
}  // namespace sape2::kernels::test
