#include "kernels/cuda/host/device.h"

namespace sape2::kernels::cuda {
namespace {

// All kernels are compiled for the same architectures, so one can tell of all.
constexpr int kHopperThreads = 128;
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
constexpr int kProbeThreads = kHopperThreads;
#else
constexpr int kProbeThreads = 2 * kHopperThreads;
#endif
__global__ void __launch_bounds__(kProbeThreads) probe_kernel() {}

}  // namespace

int shared_memory_limit() {
  return once_a_device([](int device) {
    int bytes = 0;
    check(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
          "asking for the device's shared memory");
    return bytes;
  });
}

int multiprocessors() {
  return once_a_device([](int device) {
    int count = 0;
    check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device),
          "asking for the device's multiprocessors");
    return count;
  });
}

bool is_sm90a() {
  return once_a_device([](int) -> int {
           cudaFuncAttributes attributes{};
           check(cudaFuncGetAttributes(&attributes, probe_kernel),
                 "asking for the kernels' architecture");
           return attributes.maxThreadsPerBlock == kHopperThreads;
         }) != 0;
}

Device current_device() {
  return {shared_memory_limit(), multiprocessors(), is_sm90a()};
}

}  // namespace sape2::kernels::cuda
