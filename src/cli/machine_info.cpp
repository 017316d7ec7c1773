#include "cli/machine_info.h"

#include "sape2/version.h"

#include "cli/threads.h"

#include <torch/version.h>

namespace sape2::cli {

MachineInfo find_machine_info() {
  return {.version = SAPE2_VERSION,
          .libtorch = TORCH_VERSION,
          .threads = threads_in_use(),
          .blas = find_blas_library(),
          .cpu = find_cpu_info(),
          .libtorch_cuda = libtorch_has_cuda(),
          .cuda_devices = find_cuda_devices()};
}

}  // namespace sape2::cli
