// What must hold to the last bit: threads, places, equal patches, close vectors.
#include "harness.h"
#include "targets.h"

#include <gtest/gtest.h>

#include <cstring>

namespace sape2::kernels::testing {
namespace {

bool same_bits(const Array<float>& a, const Array<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void expect_same_bits(const Result<float>& a, const Result<float>& b) {
  EXPECT_TRUE(same_bits(a.out, b.out));
  EXPECT_TRUE(same_bits(a.softmax, b.softmax));
  EXPECT_TRUE(same_bits(a.dq, b.dq) && same_bits(a.dk, b.dk) && same_bits(a.dv, b.dv));
  EXPECT_TRUE(same_bits(a.dq_x, b.dq_x) && same_bits(a.dq_y, b.dq_y));
  EXPECT_TRUE(same_bits(a.dk_x, b.dk_x) && same_bits(a.dk_y, b.dk_y));
  EXPECT_TRUE(same_bits(a.dgate_scale, b.dgate_scale));
  EXPECT_TRUE(same_bits(a.dgate_offset, b.dgate_offset));
  EXPECT_TRUE(same_bits(a.dgain, b.dgain));
}

Problem<double> problem(Shape shape, Form form, Span span, Source source) {
  Problem<double> p;
  p.shape = shape;
  p.scale = 0.25;
  p.form = form;
  p.span = span;
  p.source = source;
  p.positions = static_cast<int>(2 * std::max(shape.rows, shape.cols) - 1);
  std::mt19937 generator(3);
  fill(p, generator, 1.0, 0.3);
  return p;
}

TEST(Exactness, ThreadsAndRepetitionsChangeNoBit) {
  for_each_target([] {
    for (const Form form : {Form::distance, Form::direct}) {
      for (const Shape shape : {Shape{7, 3, 4, 5, 1, 16}, Shape{1, 2, 17, 16, 0, 8}}) {
        const auto p = cast<float>(problem(shape, form, Span::suffix, Source::qk));
        const Result<float> alone = run_kernels(p, SerialExecutor());
        for (const int threads : {1, 2, 3, 5}) {
          SCOPED_TRACE(threads);
          expect_same_bits(alone, run_kernels(p, ThreadExecutor(threads)));
        }
      }
    }
  });
}

/// Patches of equal content in lines of equal content have the same suffix vectors wherever they
/// stand, bit by bit; then they are at distance 0, and nothing flows back through that distance.
TEST(Exactness, EqualPatchesAreAtDistanceZero) {
  for_each_target([] {
    for (const Source source : {Source::q, Source::k, Source::qk}) {
      // Of several tiles and of odd sizes, so that equal patches stand in every corner of a block.
      for (const Shape shape :
           {Shape{1, 1, 3, 5, 1, 20}, Shape{1, 1, 13, 15, 1, 20}, Shape{1, 1, 19, 18, 0, 12}}) {
        Problem<double> p = problem(shape, Form::distance, Span::suffix, source);
        const std::size_t d = static_cast<std::size_t>(shape.head_size);
        for (std::size_t n = static_cast<std::size_t>(shape.prefix + 1) * d; n < p.q.size(); ++n) {
          p.q[n] = p.q[n - d];
          p.k[n] = p.k[n - d];
        }
        const Problem<float> single = cast<float>(p);
        Result<float> r = run_stage1_kernels(
            single, Array<float>(p.sets() * shape.patches() * shape.cols),
            Array<float>(p.sets() * shape.patches() * shape.rows), SerialExecutor());
        for (std::size_t i = static_cast<std::size_t>(shape.cols); i < r.x.size(); ++i) {
          const std::size_t set = r.x.size() / p.sets();
          if (i % set < static_cast<std::size_t>(shape.cols)) continue;
          ASSERT_EQ(r.x[i], r.x[i - static_cast<std::size_t>(shape.cols)]);
        }
        r = run_kernels(single, SerialExecutor());
        EXPECT_EQ(largest(r.dgate_scale), 0.0);
        EXPECT_EQ(largest(r.dgate_offset), 0.0);
        EXPECT_EQ(largest(r.dgain), 0.0);
        EXPECT_EQ(largest(r.dk_x) + largest(r.dq_x) + largest(r.dk_y) + largest(r.dq_y), 0.0);
      }
    }
  });
}

/// Vectors of norm 1e3 that differ by 1e-3 lose nothing in their distance.
TEST(Exactness, LongVectorsThatDifferLittleKeepTheirDistance) {
  for_each_target([] {
    for (const auto [rows, cols] : {std::array{4, 4}, std::array{12, 20}, std::array{33, 31}}) {
      Problem<double> p;
      p.shape = {1, 1, rows, cols, 0, 8};
      p.scale = 0.5;
      p.inside = false;
      p.positions = 2;
      std::mt19937 generator(5);
      fill(p, generator, 1e-3, 0.3);
      p.gain = {300.0};  // so that distances of 1e-3 matter
      const std::size_t patches = static_cast<std::size_t>(p.shape.patches());
      const auto near = [&](int length) {
        const Array<double> centre = random_normal(generator, length, 1e3 / std::sqrt(length));
        const Array<double> offset =
            random_normal(generator, patches * length, 1e-3 / std::sqrt(length));
        Array<float> result(offset.size());
        for (std::size_t i = 0; i < result.size(); ++i) {
          result[i] = static_cast<float>(centre[i % length] + offset[i]);
        }
        return result;
      };
      const Array<float> x = near(cols), y = near(rows);
      const auto exact = Reference<double>(p).run_stage2(cast<double>(x), cast<double>(y));
      const auto kernel = run_stage2_kernels(cast<float>(p), x, y, SerialExecutor());
      EXPECT_LE(spread(kernel.out, exact.out), 1e-6);
      EXPECT_LE(spread(kernel.dx, exact.dx), 2e-6 * largest(exact.dx));
      EXPECT_LE(spread(kernel.dy, exact.dy), 2e-6 * largest(exact.dy));
      EXPECT_NEAR(kernel.dgain[0], exact.dgain[0], 1e-5 * (std::abs(exact.dgain[0]) + 1e-3));
    }
  });
}

/// Open gates are exactly 1: positions are whole numbers, and no gradient reaches the gates.
TEST(Exactness, OpenGatesGiveWholePositions) {
  for_each_target([] {
    Problem<double> p = problem({1, 1, 4, 6, 1, 16}, Form::direct, Span::between, Source::k);
    p.gate_scale = {0.0};
    p.gate_offset = {INFINITY};
    const Problem<float> single = cast<float>(p);
    const Result<float> r = run_kernels(single, SerialExecutor());
    EXPECT_EQ(r.dgate_scale[0], 0.0F);
    EXPECT_EQ(r.dgate_offset[0], 0.0F);
    const Result<double> exact = Reference<double>(p).run();
    EXPECT_LE(worst(r.out, exact.out), 2e-6);
    EXPECT_LE(worst(r.dk_x, exact.dk_x), 1e-5);
  });
}

}  // namespace
}  // namespace sape2::kernels::testing
