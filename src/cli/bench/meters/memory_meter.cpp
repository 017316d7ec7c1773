#include "cli/bench/meters/memory_meter.h"

#include "sape2/kernels/runtime.h"

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/version.h>

#include <algorithm>

namespace sape2::cli {
namespace {

#if TORCH_VERSION_MAJOR >= 2
using Total = std::size_t;
#else
using Total = std::int64_t;
#endif

/// Hears of every allocation that LibTorch makes on the CPU.
class Meter : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void* /*pointer*/, std::int64_t size, Total /*allocated*/,
                         Total /*reserved*/, c10::Device /*device*/) override {
    held_ += size;
    peak_ = std::max(peak_, held_);
  }
  bool memoryProfilingEnabled() const override { return true; }

  std::int64_t held() const { return held_; }
  std::int64_t peak() const { return peak_; }

 private:
  std::int64_t held_ = 0;
  std::int64_t peak_ = 0;
};

}  // namespace

std::int64_t peak_extra_bytes(const std::function<void()>& work) {
  const auto meter = std::make_shared<Meter>();
  kernels::reset_scratch_peak();
  {
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, meter);
    work();
  }
  const std::int64_t left_behind = std::max<std::int64_t>(meter->held(), 0);
  return meter->peak() - left_behind + kernels::scratch_use().peak_bytes;
}

}  // namespace sape2::cli
