#pragma once

#include "device.h"
#include "numbers.h"
#include "runner.h"

#include <gtest/gtest.h>

#include <string>

/// What the tests of attention's kernels share: problems, and how near their solutions must come.
namespace sape2::kernels::test {

/// Run once for each type, where there is a GPU.
class GpuTest : public testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    if (!has_gpu()) GTEST_SKIP() << "there is no GPU here";
  }
};

inline auto all_types() {
  return testing::Values(DType::float32, DType::bfloat16, DType::float16);
}
std::string type_name(const testing::TestParamInfo<DType>& info);

/// Fills a problem whose shape and settings are chosen.
Problem filled(Problem p, Random& random, double spread = 1);

/// Table rows that no position leaves.
std::int64_t default_positions(const Problem& p);

std::string described(const Problem& p);

/// float32 must come near its own rounding, 16 bits near theirs.
double tolerance(DType type);

double norm(const Numbers& numbers);
double error_norm(const Numbers& ours, const Numbers& exact);

/// ‖ours − exact‖ ≤ most · ‖exact‖, or · `terms` where sums cancel and that is larger.
void expect_near(const char* name, const Numbers& ours, const Numbers& exact, double most,
                 double terms = 0);

/// Everything that a problem has, against float64 loops.
void expect_near(const Solution& ours, const Problem& problem, DType type);

/// The kernels' solution of a problem; the same to the last bit whether vectors are kept or not.
void expect_right(const Problem& given, DType type, bool packed);

}  // namespace sape2::kernels::test
