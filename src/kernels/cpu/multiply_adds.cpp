// clang-format off: each SIMD target includes this file again.
#include "cpu/target.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/multiply_adds.cpp"
#include <hwy/foreach_target.h>
// clang-format on

#include "sape2/kernels/runtime.h"

#include "cpu/math-inl.h"

#include <algorithm>
#include <chrono>

HWY_BEFORE_NAMESPACE();
namespace sape2::kernels::HWY_NAMESPACE {
namespace {

// As many independent sums as keep two units of latency 5 busy and fit into 16 registers.
constexpr int kSums = 12;
constexpr int kRounds = 20000;

/// Operations done; `result` keeps the compiler from leaving them out.
double burst(float* result) {
  const F f;
  const V factor = hn::Set(f, *result * 0.5F), term = hn::Set(f, 0.25F);
  V sum[kSums];
#pragma GCC unroll 16
  for (int s = 0; s < kSums; ++s) sum[s] = hn::Set(f, static_cast<float>(s));
  for (int round = 0; round < kRounds; ++round) {
#pragma GCC unroll 16
    for (int s = 0; s < kSums; ++s) sum[s] = hn::MulAdd(sum[s], factor, term);
  }
  V all = sum[0];
  for (int s = 1; s < kSums; ++s) all = hn::Add(all, sum[s]);
  *result = std::min(1.0F, hn::GetLane(all));
  return 2.0 * kSums * kRounds * kLanes;
}

}  // namespace

double fastest_burst(double milliseconds) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  double best = 0, spent = 0;
  volatile float seed = 1.0F;
  float result = seed;
  while (spent < milliseconds) {
    const auto start = Clock::now();
    const double operations = burst(&result);
    const auto end = Clock::now();
    best =
        std::max(best, operations / std::chrono::duration<double, std::nano>(end - start).count());
    spent = std::chrono::duration<double, std::milli>(end - begin).count();
  }
  seed = result;
  return best;
}

}  // namespace sape2::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sape2::kernels {

HWY_EXPORT(fastest_burst);

double multiply_add_gflops(double milliseconds) {
  return HWY_DYNAMIC_DISPATCH(fastest_burst)(milliseconds);
}

}  // namespace sape2::kernels
#endif
