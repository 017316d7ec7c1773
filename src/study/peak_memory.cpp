#include "study/peak_memory.h"

#include <malloc.h>

#include <fstream>
#include <string>

#ifdef SAPE2_STUDY_CUDA
#include <c10/cuda/CUDACachingAllocator.h>
#endif

namespace sape2::study {
namespace {

constexpr std::int64_t kKibibyte = 1024;

#ifdef SAPE2_STUDY_CUDA
int gpu_number(const std::string& device) {
  return device.starts_with("cuda:") ? std::stoi(device.substr(5)) : 0;
}
#endif

bool on_gpu([[maybe_unused]] const std::string& device) {
#ifdef SAPE2_STUDY_CUDA
  return device.starts_with("cuda");
#else
  return false;
#endif
}

}  // namespace

void reset_peak_memory(const std::string& device) {
  if (on_gpu(device)) {
#ifdef SAPE2_STUDY_CUDA
    c10::cuda::CUDACachingAllocator::emptyCache();
    c10::cuda::CUDACachingAllocator::resetPeakStats(
        static_cast<c10::DeviceIndex>(gpu_number(device)));
#endif
    return;
  }
  // What earlier runs freed must not count for the next one.
  ::malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << "5";  // resets VmHWM, see proc(5)
}

std::int64_t peak_memory(const std::string& device) {
  if (on_gpu(device)) {
#ifdef SAPE2_STUDY_CUDA
    const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(
        static_cast<c10::DeviceIndex>(gpu_number(device)));
    return stats.allocated_bytes[0].peak;
#endif
  }
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    std::int64_t kibibytes = 0;
    if (word == "VmHWM:" && status >> kibibytes) return kibibytes * kKibibyte;
  }
  return 0;
}

}  // namespace sape2::study
