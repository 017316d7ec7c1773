#pragma once

#include "ops/arguments.h"

#include <ATen/ATen.h>

#include <vector>

/// Sape2Arguments::gate_divisor: the kernels know gate_scale alone, so the quotient takes its place
/// below autograd. A division of its own would be one more node of the graph, which costs a small
/// call more than all else about its gates. Other arguments have nothing to divide.
namespace sape2::ops {

/// value / divisor; on the CPU past the dispatcher.
at::Tensor quotient(const at::Tensor& value, double divisor);

inline bool divides_gates(const Sape2Arguments& a) {
  return a.gate_divisor != 1 && a.vectors.gate_scale.defined();
}
inline at::Tensor divided_gates(const Sape2Arguments& a) {
  return quotient(a.vectors.gate_scale, a.gate_divisor);
}

/// Puts the quotient in gate_scale's place, and returns it.
inline at::Tensor put_divided_gates(Sape2Arguments& a, const at::Tensor& divided) {
  return a.vectors.gate_scale = divided;
}

/// Makes of the quotient's gradient, one of the wanted ones in `gradients`, that of gate_scale.
void divide_gradient(const Sape2Arguments& a, int64_t wanted, std::vector<at::Tensor>& gradients);

/// The same for a projection's output. In compiled graphs its operator divides by itself.
bool divides_gates(const PackedArguments& a);
inline at::Tensor divided_gates(const PackedArguments& a) {
  return divided_gates(a.split);
}
inline at::Tensor put_divided_gates(PackedArguments& a, const at::Tensor& divided) {
  a.has_quotient = true;
  return put_divided_gates(a.split, divided);
}
void divide_gradient(const PackedArguments& a, int64_t wanted, std::vector<at::Tensor>& gradients);

template <class Arguments>
bool divides_gates(const Arguments&) {
  return false;
}
template <class Arguments>
at::Tensor divided_gates(const Arguments&) {
  return {};
}
template <class Arguments>
at::Tensor put_divided_gates(Arguments&, const at::Tensor&) {
  return {};
}
template <class Arguments>
void divide_gradient(const Arguments&, int64_t, std::vector<at::Tensor>&) {}

}  // namespace sape2::ops
