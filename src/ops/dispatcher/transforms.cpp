// vmap would run fused attention one image at a time, in a slow loop over kernels, and its
// gradients not at all: it is refused by name.
#include "ops/dispatcher/transforms.h"

#include <c10/util/Exception.h>
#include <torch/library.h>

namespace sape2::ops {

void refuse_vmap(const c10::OperatorHandle& op, torch::jit::Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, op.schema().name(),
      " cannot be mapped by vmap; call it once with all images, which are its first axis");
}

TORCH_LIBRARY_IMPL(sape2, FuncTorchBatched, m) {
  for (const char* name :
       {"attention", "sape2_attention", "_sape2_attention", "_packed_sape2_attention",
        "sape2_vectors", "distance_attention", "axial_attention", "sape2_bias", "cope_attention"})
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&refuse_vmap>());
}

}  // namespace sape2::ops
