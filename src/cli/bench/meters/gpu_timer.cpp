#include "cli/bench/meters/gpu_timer.h"

#include "sape2/base/error.h"

#include "cli/bench/meters/gpu_memory.h"

#ifdef SAPE2_LIBTORCH_CUDA
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>
#include <limits>
#endif

namespace sape2::cli {

#ifdef SAPE2_LIBTORCH_CUDA

namespace {

constexpr double kRowMilliseconds = 8;  // long against the events' own resolution
constexpr int kWarmUps = 3;             // libraries choose their algorithms

class Event {
 public:
  Event() { C10_CUDA_CHECK(cudaEventCreate(&event_)); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record() { C10_CUDA_CHECK(cudaEventRecord(event_, c10::cuda::getCurrentCUDAStream())); }
  double milliseconds_since(const Event& earlier) const {
    float time = 0;
    C10_CUDA_CHECK(cudaEventSynchronize(event_));
    C10_CUDA_CHECK(cudaEventElapsedTime(&time, earlier.event_, event_));
    return time;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

double milliseconds_of_row(const std::function<void()>& work, int passes) {
  Event begin, end;
  begin.record();
  for (int pass = 0; pass < passes; ++pass) work();
  end.record();
  return end.milliseconds_since(begin) / passes;
}

double least_of_rows(const std::function<void()>& work, int passes, int rounds) {
  double least = std::numeric_limits<double>::infinity();
  for (int round = 0; round < rounds; ++round)
    least = std::min(least, milliseconds_of_row(work, passes));
  return least;
}

int passes_in_row(const std::function<void()>& work) {
  for (int pass = 0; pass < kWarmUps; ++pass) work();
  const double one = std::max(milliseconds_of_row(work, 2), 1e-3);
  return static_cast<int>(std::clamp(kRowMilliseconds / one, 1.0, 200.0));
}

}  // namespace

double called_milliseconds(const std::function<void()>& work, int rounds) {
  return least_of_rows(work, passes_in_row(work), rounds);
}

double recorded_milliseconds(const std::function<void()>& work, int rounds) {
  // A recording must not be on the default stream.
  const c10::cuda::CUDAStreamGuard on(c10::cuda::getStreamFromPool());
  const int passes = std::max(1, passes_in_row(work) / 4);
  at::cuda::CUDAGraph graph;
  graph.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
  for (int pass = 0; pass < passes; ++pass) work();
  graph.capture_end();
  const auto replay = [&] { graph.replay(); };
  replay();
  return least_of_rows(replay, 4, rounds) / passes;
}

double peak_extra_mebibytes(const std::function<void()>& work) {
  work();
  C10_CUDA_CHECK(cudaDeviceSynchronize());
  reset_peak_gpu_memory();
  const auto before = peak_gpu_memory();
  work();
  return static_cast<double>(peak_gpu_memory() - before) / (1 << 20);
}

#else

namespace {

[[noreturn]] void refuse() {
  throw Error("this program was built without CUDA and cannot measure a GPU");
}

}  // namespace

double called_milliseconds(const std::function<void()>& /*work*/, int /*rounds*/) {
  refuse();
}
double recorded_milliseconds(const std::function<void()>& /*work*/, int /*rounds*/) {
  refuse();
}
double peak_extra_mebibytes(const std::function<void()>& /*work*/) {
  refuse();
}

#endif

}  // namespace sape2::cli
