#include "train/step_runner.h"

#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include <array>
#include <optional>

namespace sape2::train {
namespace {

// Runs before the recording, in which libraries choose their algorithms and set up their memory.
constexpr int kWarmUps = 3;

class Timer {
 public:
  Timer() { C10_CUDA_CHECK(cudaEventCreate(&event_)); }
  ~Timer() { cudaEventDestroy(event_); }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  void record(cudaStream_t stream) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    C10_CUDA_CHECK(cudaStreamIsCapturing(stream, &status));
    // Inside a recording, the event is to be recorded by each replay.
    const unsigned flags =
        status == cudaStreamCaptureStatusNone ? cudaEventRecordDefault : cudaEventRecordExternal;
    C10_CUDA_CHECK(cudaEventRecordWithFlags(event_, stream, flags));
  }
  double seconds_until(const Timer& later) const {
    float milliseconds = 0;
    C10_CUDA_CHECK(cudaEventSynchronize(later.event_));
    C10_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, event_, later.event_));
    return milliseconds / 1000;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

void make_wait(const c10::cuda::CUDAStream& stream, const c10::cuda::CUDAStream& on) {
  at::cuda::CUDAEvent event;
  event.record(on);
  event.block(stream);
}

class GraphRunner : public StepRunner {
 public:
  explicit GraphRunner(c10::Device device)
      : stream_(c10::cuda::getStreamFromPool(true, device.index())) {}

  void run(const std::function<void()>& work) override {
    const auto outer = c10::cuda::getCurrentCUDAStream(stream_.device_index());
    make_wait(stream_, outer);
    {
      const c10::cuda::CUDAStreamGuard on(stream_);
      if (runs_ < kWarmUps) {
        work();
        ++runs_;
      } else {
        if (!graph_) record(work);
        graph_->replay();
      }
    }
    make_wait(outer, stream_);
  }

  void mark(int place) override {
    auto& timer = timers_.at(static_cast<std::size_t>(place));
    if (!timer) timer.emplace();
    timer->record(c10::cuda::getCurrentCUDAStream(stream_.device_index()).stream());
  }

  double seconds(int from, int to) override {
    return timers_.at(static_cast<std::size_t>(from))
        ->seconds_until(*timers_.at(static_cast<std::size_t>(to)));
  }

 private:
  void record(const std::function<void()>& work) {
    auto graph = std::make_unique<at::cuda::CUDAGraph>();
    // Other threads, such as the loader's, go on as if nothing were being recorded.
    graph->capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
    work();
    graph->capture_end();
    graph_ = std::move(graph);
  }

  c10::cuda::CUDAStream stream_;
  int runs_ = 0;
  std::array<std::optional<Timer>, kMostMarks> timers_;
  std::unique_ptr<at::cuda::CUDAGraph> graph_;
};

}  // namespace

std::unique_ptr<StepRunner> make_step_runner(c10::Device device) {
  if (!device.is_cuda()) return make_plain_runner();
  return std::make_unique<GraphRunner>(device);
}

}  // namespace sape2::train
