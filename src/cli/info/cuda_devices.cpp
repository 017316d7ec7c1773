#include "cli/info/cuda_devices.h"

#include <ATen/Context.h>
#include <dlfcn.h>

namespace sape2::cli {
namespace {

// The driver's own interface, found at run time, so that one program serves machines with and
// without it. 0 is success everywhere.
class Driver {
 public:
  Driver() : library_(::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)) {}
  ~Driver() {
    if (library_ != nullptr) ::dlclose(library_);
  }
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  template <class... Arguments>
  bool call(const char* name, Arguments... arguments) const {
    if (library_ == nullptr) return false;
    auto* function = reinterpret_cast<int (*)(Arguments...)>(::dlsym(library_, name));
    return function != nullptr && function(arguments...) == 0;
  }

 private:
  void* library_;
};

constexpr int kCapabilityMajor = 75;
constexpr int kCapabilityMinor = 76;

}  // namespace

std::vector<CudaDevice> find_cuda_devices() {
  const Driver driver;
  std::vector<CudaDevice> devices;
  int count = 0;
  if (!driver.call("cuInit", 0u) || !driver.call("cuDeviceGetCount", &count)) return devices;
  for (int index = 0; index < count; ++index) {
    int handle = 0;
    if (!driver.call("cuDeviceGet", &handle, index)) continue;
    CudaDevice device;
    char name[256] = "";
    if (driver.call("cuDeviceGetName", &name[0], static_cast<int>(sizeof name), handle)) {
      device.name = name;
    }
    driver.call("cuDeviceTotalMem_v2", &device.memory_bytes, handle);
    driver.call("cuDeviceGetAttribute", &device.capability_major, kCapabilityMajor, handle);
    driver.call("cuDeviceGetAttribute", &device.capability_minor, kCapabilityMinor, handle);
    devices.push_back(std::move(device));
  }
  return devices;
}

bool libtorch_has_cuda() {
  return at::globalContext().hasCUDART();
}

}  // namespace sape2::cli
