// A build without CUDA kernels: everything runs on the formulas.
#include "sape2/ops/augment.h"

#include "ops/training/gather.h"
#include "ops/training/kernels.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

namespace sape2::ops {
namespace {

[[noreturn]] void absent() {
  TORCH_CHECK(false, "sape2: this build has no CUDA kernels; build with -DSAPE2_CUDA=ON");
}

}  // namespace

namespace fused {

bool available() {
  return false;
}
Normed add_and_norm(const NormArguments&) {
  absent();
}
NormGradients add_and_norm_backward(const NormArguments&, const at::Tensor&, const at::Tensor&,
                                    const at::Tensor&, const at::Tensor&) {
  absent();
}
at::Tensor gelu(const at::Tensor&, const at::Tensor&) {
  absent();
}
std::pair<at::Tensor, at::Tensor> gelu_backward(const at::Tensor&, const at::Tensor&,
                                                const at::Tensor&) {
  absent();
}
at::Tensor column_sums(const at::Tensor&) {
  absent();
}
bool linear_serves(const at::Tensor&, int64_t, int64_t) {
  return false;
}
Activated linear_gelu(const at::Tensor&, const at::Tensor&, const at::Tensor&, bool) {
  absent();
}
std::pair<at::Tensor, at::Tensor> linear_gelu_backward(const at::Tensor&, const at::Tensor&,
                                                       const at::Tensor&) {
  absent();
}
bool weight_gradient_serves(const at::Tensor&, const at::Tensor&) {
  return false;
}
bool weight_gradients_suffice(const std::vector<WeightGradient>&) {
  absent();
}
void weight_gradients(const std::vector<WeightGradient>&) {
  absent();
}
std::pair<at::Tensor, at::Tensor> cross_entropy(const at::Tensor&, const at::Tensor&, double) {
  absent();
}

bool turns(const at::Tensor&) {
  return false;
}
std::array<at::Tensor, 3> turned(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                 const Grid&, const Rotation&) {
  absent();
}
std::pair<at::Tensor, at::Tensor> turn_back(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                            const at::Tensor&, const Grid&, const Rotation&, bool) {
  absent();
}

}  // namespace fused

void gather_on_gpu(const std::vector<GradientPiece>&, const at::Tensor&, bool) {
  absent();
}
bool can_augment(const at::Tensor&) {
  return false;
}
AugmentedBatch augment(const at::Tensor&, const at::Tensor&, const AugmentPlan&,
                       const AugmentSettings&) {
  absent();
}
void adam_pass(const AdamPass&) {
  absent();
}
at::Tensor clipping_norm(const at::Tensor&, double) {
  absent();
}

}  // namespace sape2::ops
