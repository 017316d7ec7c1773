// Rows of the inspection interface against the golden values and the operators themselves.
#include "sape2/ops/inspect.h"

#include "ops/inspection/attention_weights.h"
#include "support/sape2_case.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

namespace sape2::testing {
namespace {

constexpr double kExact = 1e-10;

ops::PatchList some_patches(const ops::Grid& grid) {
  return {grid.patches() - 1, 0, grid.patches() / 2};
}

at::Tensor chosen(const at::Tensor& of_patches, const ops::Grid& grid) {
  return of_patches.index_select(2, at::tensor(some_patches(grid), at::kLong));
}

TEST(Inspect, GivesTheRowsOfEveryGoldenCase) {
  const at::NoGradGuard no_grad;
  for (const auto& golden : golden_cases("sape2")) {
    SCOPED_TRACE(golden.name);
    const Sape2Case given(golden, at::kDouble);
    const ops::Grid& grid = given.grid;
    const auto rows =
        ops::sape2_attention_rows(given.q, given.k, given.ex, given.ey, grid, some_patches(grid),
                                  given.vector_options, given.form, given.bias_options);
    const at::Tensor bias = golden.tensors.at("bias")
                                .narrow(2, grid.prefix, grid.patches())
                                .narrow(3, grid.prefix, grid.patches());
    EXPECT_LE(relative_error(rows.bias, chosen(bias, grid)), kExact);
    EXPECT_LE(relative_error(rows.x.bias + rows.y.bias, rows.bias), kExact);
    EXPECT_EQ(rows.is_distance, given.form == "distance");
    const at::Tensor expected = ops::attention_weights(given.q, [&](const at::Tensor& v) {
      return ops::sape2_attention(given.q, given.k, v, given.ex, given.ey, grid,
                                  given.vector_options, given.form, given.bias_options);
    });
    EXPECT_LE(relative_error(rows.attention,
                             chosen(expected.narrow(2, grid.prefix, grid.patches()), grid)),
              kExact);
  }
}

// Reading the table at the positions must give the axis vectors that the kernel made.
TEST(Inspect, PositionsLeadToTheKernelsVectors) {
  const at::NoGradGuard no_grad;
  for (const auto& golden : golden_cases("sape2")) {
    const Sape2Case given(golden, at::kDouble);
    if (given.vector_options.mode == "qk" || given.ex.dim() == 3) continue;
    SCOPED_TRACE(golden.name);
    const ops::Grid& grid = given.grid;
    const auto rows =
        ops::sape2_attention_rows(given.q, given.k, given.ex, given.ey, grid, some_patches(grid),
                                  given.vector_options, given.form, given.bias_options);
    const at::Tensor a = given.vector_options.mode == "q" ? given.q : given.k;
    const at::Tensor z = at::matmul(chosen(a.narrow(2, grid.prefix, grid.patches()), grid),
                                    given.ex.transpose(0, 1));
    const int64_t origin = given.vector_options.span == "suffix" ? 0 : given.ex.size(0) / 2;
    const at::Tensor place = rows.x.positions + origin, below = place.floor();
    const at::Tensor read = at::lerp(z.gather(3, below.to(at::kLong)),
                                     z.gather(3, place.ceil().to(at::kLong)), place - below);
    EXPECT_LE(relative_error(read, chosen(given.vectors().first, grid)), 1e-9);
    EXPECT_GE(rows.x.gates.min().item<double>(), 0);
    EXPECT_LE(rows.x.gates.max().item<double>(), 1);
  }
}

TEST(Inspect, CopeRowsAreThoseOfTheOperator) {
  const at::NoGradGuard no_grad;
  at::manual_seed(5);
  const ops::Grid grid{2, 3, 1};
  const at::Tensor q = at::randn({1, 2, 7, 8}, at::kDouble), k = at::randn_like(q);
  const at::Tensor e = at::randn({5, 8}, at::kDouble);
  const auto rows = ops::cope_attention_rows(q, k, e, grid, some_patches(grid));
  const at::Tensor expected = ops::attention_weights(
      q, [&](const at::Tensor& v) { return ops::cope_attention(q, k, v, e); });
  EXPECT_LE(relative_error(rows.attention, chosen(expected.narrow(2, 1, 6), grid)), kExact);
  EXPECT_EQ(rows.positions.size(3), 7);
  EXPECT_EQ(rows.bias.size(3), 6);
}

TEST(Inspect, NamesAPatchOutsideTheGrid) {
  const at::Tensor q = at::randn({1, 1, 6, 4});
  try {
    ops::attention_rows(q, q, {2, 3, 0}, {6});
    FAIL() << "patch 6 of 2×3 was accepted";
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what_without_backtrace()).find("patch 6"), std::string::npos);
  }
}

}  // namespace
}  // namespace sape2::testing
