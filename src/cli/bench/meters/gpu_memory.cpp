#include "cli/bench/meters/gpu_memory.h"

#ifdef SAPE2_LIBTORCH_CUDA
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#endif

namespace sape2::cli {

#ifdef SAPE2_LIBTORCH_CUDA

std::int64_t peak_gpu_memory() {
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(c10::cuda::current_device());
  return stats.allocated_bytes[0].peak;  // all pools together
}

void reset_peak_gpu_memory() {
  c10::cuda::CUDACachingAllocator::resetPeakStats(c10::cuda::current_device());
}

#else

std::int64_t peak_gpu_memory() {
  return 0;
}

void reset_peak_gpu_memory() {}

#endif

}  // namespace sape2::cli
