#include "cli/info/machine_info.h"

#include "sape2/version.h"

#include "cli/info/compute_rate.h"
#include "cli/threads.h"

#include <torch/version.h>

namespace sape2::cli {

MachineInfo find_machine_info() {
  return {.version = SAPE2_VERSION,
          .libtorch = TORCH_VERSION,
          .threads = threads_in_use(),
          .blas = find_blas_library(),
          .thread_gflops = thread_gflops(),
          .core_gflops = core_gflops(),
          .cpu_model = base::cpu_model_name(),
          .cores = base::usable_cores(),
          .cpu = base::features_of(base::read_cpu()),
          .settings = base::applied_settings(),
          .libtorch_cuda = libtorch_has_cuda(),
          .cuda_devices = find_cuda_devices()};
}

}  // namespace sape2::cli
