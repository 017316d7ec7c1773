#pragma once

#include "cli/blas_library.h"
#include "cli/components.h"
#include "cli/cpu_info.h"
#include "cli/cuda_devices.h"

#include <string>
#include <vector>

namespace sape2::cli {

/// What this program runs on.
struct MachineInfo {
  std::string version;
  std::string libtorch;
  int threads = 1;
  BlasLibrary blas;
  CpuInfo cpu;
  bool libtorch_cuda = false;
  std::vector<CudaDevice> cuda_devices;
};

MachineInfo find_machine_info();

}  // namespace sape2::cli
