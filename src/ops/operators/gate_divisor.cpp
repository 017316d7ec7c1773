#include "ops/operators/gate_divisor.h"

#include "ops/backends/kernel_views.h"
#include "ops/sizes.h"

#include <algorithm>

namespace sape2::ops {
namespace {

/// Divides the gradient of the gates' factor, which `gates` has, among the wanted ones of `a`.
template <class Arguments>
void divide(const Arguments& a, const Sape2Arguments& gates, int64_t wanted,
            std::vector<at::Tensor>& gradients) {
  const auto tensors = a.tensors();
  size_t place = 0;
  for (size_t index = 0; index < tensors.size(); ++index) {
    const bool is_wanted = (wanted >> index) & 1;
    if (tensors[index] == &gates.vectors.gate_scale && is_wanted)
      gradients.at(place) = quotient(gradients.at(place), gates.gate_divisor);
    if (is_wanted) ++place;
  }
}

}  // namespace

at::Tensor quotient(const at::Tensor& value, double divisor) {
  const bool plain = value.is_cpu() && is_plain(value) && value.scalar_type() == at::kFloat &&
                     value.is_contiguous();
  if (!plain) return at::div(value, divisor);
  const at::Tensor result = empty_floats(value.sizes());
  const float* const from = value.data_ptr<float>();
  std::transform(from, from + value.numel(), result.data_ptr<float>(),
                 [by = static_cast<float>(divisor)](float x) { return x / by; });
  return result;
}

bool divides_gates(const PackedArguments& a) {
  return !is_traced(a.qkv) && divides_gates(a.split);
}

void divide_gradient(const Sape2Arguments& a, int64_t wanted, std::vector<at::Tensor>& gradients) {
  if (divides_gates(a)) divide(a, a, wanted, gradients);
}

void divide_gradient(const PackedArguments& a, int64_t wanted, std::vector<at::Tensor>& gradients) {
  if (a.has_quotient) divide(a, a.split, wanted, gradients);
}

}  // namespace sape2::ops
