#pragma once

#include "sape2/base/cpu.h"
#include "sape2/base/start_up.h"

#include "cli/info/blas_library.h"
#include "cli/info/components.h"
#include "cli/info/cuda_devices.h"

#include <string>
#include <vector>

namespace sape2::cli {

/// What this program runs on.
struct MachineInfo {
  std::string version;
  std::string libtorch;
  int threads = 1;
  BlasLibrary blas;
  double thread_gflops = 0;  ///< of one thread in float32 matrix products, measured
  double core_gflops = 0;    ///< what a core could give at most, measured
  std::string cpu_model;     ///< as the maker calls it; empty where the system does not say
  int cores = 1;             ///< that this process may use
  base::CpuFeatures cpu;
  std::vector<base::AppliedSetting> settings;
  bool libtorch_cuda = false;
  std::vector<CudaDevice> cuda_devices;
};

MachineInfo find_machine_info();

}  // namespace sape2::cli
