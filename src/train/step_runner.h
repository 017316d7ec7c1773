#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <memory>

namespace sape2::train {

/// Runs the same work again and again on a device. On an NVIDIA GPU it is recorded once as a CUDA
/// graph and then replayed, so that a step costs one launch instead of hundreds; the work must read
/// whatever changes from tensors that stay where they are, and leave its results in such ones.
class StepRunner {
 public:
  virtual ~StepRunner() = default;

  virtual void run(const std::function<void()>& work) = 0;

  /// Called by the work: takes the time at which the device gets to this place, 0 … kMostMarks − 1.
  virtual void mark(int place) = 0;
  /// Seconds between two places of the last run; waits for it.
  virtual double seconds(int from, int to) = 0;

  static constexpr int kMostMarks = 64;
};

std::unique_ptr<StepRunner> make_step_runner(c10::Device device);

/// For devices without graphs, and for comparison: the work is done as it is given.
std::unique_ptr<StepRunner> make_plain_runner();

}  // namespace sape2::train
