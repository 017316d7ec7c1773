#include "kernels/cuda/host/device.h"
#include "kernels/cuda/host/launch.h"

#include <map>
#include <mutex>
#include <utility>

namespace sape2::kernels::cuda {
namespace {

struct Settings {
  int shared_bytes = 48 * 1024;  // allowed without asking
  bool beside_others = false;
};

Settings& settings_of(const void* kernel) {
  static std::map<std::pair<int, const void*>, Settings> all;
  int device = 0;
  check(cudaGetDevice(&device), "asking for the current device");
  return all[{device, kernel}];
}

}  // namespace

void set_up_kernel(const void* kernel, int shared_bytes, bool beside_others) {
  static std::mutex mutex;
  const std::scoped_lock lock(mutex);
  auto& settings = settings_of(kernel);
  if (shared_bytes > settings.shared_bytes) {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes),
          "setting a kernel's shared memory");
    settings.shared_bytes = shared_bytes;
  }
  if (beside_others && !settings.beside_others) {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                               cudaSharedmemCarveoutMaxShared),
          "setting a kernel's share of shared memory");
    settings.beside_others = true;
  }
}

}  // namespace sape2::kernels::cuda
