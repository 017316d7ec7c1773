#include "cli/info/compute_rate.h"

#include "sape2/kernels/runtime.h"

#include "cli/bench/meters/stopwatch.h"
#include "cli/threads.h"

#include <ATen/ATen.h>

namespace sape2::cli {
namespace {

// Large enough to be near a library's best, under a millisecond with a good one.
constexpr int kShortSide = 384;
constexpr double kShortMilliseconds = 80;
constexpr double kPeakMilliseconds = 20;

}  // namespace

double matrix_product_gflops(int side, double milliseconds) {
  const auto a = at::randn({side, side}), b = at::randn({side, side});
  auto out = at::empty({side, side});
  const double time =
      least_milliseconds({[&] { at::mm_out(out, a, b); }}, {.milliseconds = milliseconds})[0];
  return 2.0 * side * side * side / (time * 1e6);
}

double thread_gflops() {
  const int threads = threads_in_use();
  use_threads(1);
  const double rate = matrix_product_gflops(kShortSide, kShortMilliseconds);
  use_threads(threads);
  return rate;
}

double core_gflops() {
  return kernels::multiply_add_gflops(kPeakMilliseconds);
}

}  // namespace sape2::cli
