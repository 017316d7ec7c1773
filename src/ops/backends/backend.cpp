// Which kernels run on which device.
#include "ops/backends/cpu_backend.h"
#include "ops/backends/reference_backend.h"

namespace sape2::ops {

TORCH_LIBRARY_IMPL(sape2, CPU, m) {
  Kernels<CpuBackend>::implement(m);
}
#ifndef SAPE2_FUSED_CUDA  // otherwise cuda_backend.cpp says it
TORCH_LIBRARY_IMPL(sape2, CUDA, m) {
  Kernels<ReferenceBackend>::implement(m);
}
#endif

}  // namespace sape2::ops
