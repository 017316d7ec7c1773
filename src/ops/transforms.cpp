// torch.func's transformations go through operators one tensor at a time or one derivative at a
// time, which fused attention cannot be taken apart for. They are refused by name, rather than by a
// slow loop over kernels or a sentence about somebody's C++ class.
#include <c10/util/Exception.h>
#include <torch/library.h>

namespace sape2::ops {
namespace {

void refuse_vmap(const c10::OperatorHandle& op, torch::jit::Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, op.schema().name(),
      " cannot be mapped by vmap; call it once with all images, which are its first axis");
}

void refuse_derivative(const c10::OperatorHandle& op, torch::jit::Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, op.schema().name(),
      " cannot be differentiated by torch.func (grad, vjp, jvp); use backward() or "
      "torch.autograd.grad");
}

template <c10::KernelFunction::BoxedKernelFunction* Refuse>
void implement(torch::Library& m) {
  for (const char* name : {"attention", "sape2_attention", "sape2_vectors", "distance_attention",
                           "axial_attention", "sape2_bias", "cope_attention"})
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<Refuse>());
}

}  // namespace

TORCH_LIBRARY_IMPL(sape2, FuncTorchBatched, m) {
  implement<&refuse_vmap>(m);
}
TORCH_LIBRARY_IMPL(sape2, FuncTorchGradWrapper, m) {
  implement<&refuse_derivative>(m);
}

}  // namespace sape2::ops
