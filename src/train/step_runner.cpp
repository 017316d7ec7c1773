#include "train/step_runner.h"

#include <array>
#include <chrono>

namespace sape2::train {
namespace {

class PlainRunner : public StepRunner {
 public:
  void run(const std::function<void()>& work) override { work(); }
  void mark(int place) override { times_.at(static_cast<std::size_t>(place)) = Clock::now(); }
  double seconds(int from, int to) override {
    const auto between =
        times_.at(static_cast<std::size_t>(to)) - times_.at(static_cast<std::size_t>(from));
    return std::chrono::duration<double>(between).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  std::array<Clock::time_point, kMostMarks> times_{};
};

}  // namespace

std::unique_ptr<StepRunner> make_plain_runner() {
  return std::make_unique<PlainRunner>();
}

#ifndef SAPE2_CUDA_GRAPHS  // otherwise step_runner_cuda.cpp says it
std::unique_ptr<StepRunner> make_step_runner(c10::Device) {
  return make_plain_runner();
}
#endif

}  // namespace sape2::train
