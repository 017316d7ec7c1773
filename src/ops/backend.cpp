// Which kernels run on which device.
#include "ops/cpu_backend.h"
#include "ops/reference_backend.h"

namespace sape2::ops {

TORCH_LIBRARY_IMPL(sape2, CPU, m) {
  Kernels<CpuBackend>::implement(m);
}
TORCH_LIBRARY_IMPL(sape2, CUDA, m) {
  Kernels<ReferenceBackend>::implement(m);
}

}  // namespace sape2::ops
