#include "ops/backends/packed_backend.h"
#include "ops/dispatcher/internal_ops.h"
#include "ops/dispatcher/operator_handle.h"
#include "ops/sizes.h"

namespace sape2::ops {
namespace {

using Flat = Kernels<Dispatched>;

Tensors list(TwoTensors&& outputs) {
  return {std::move(std::get<0>(outputs)), std::move(std::get<1>(outputs))};
}
Tensors list(ThreeTensors&& outputs) {
  return {std::move(std::get<0>(outputs)), std::move(std::get<1>(outputs)),
          std::move(std::get<2>(outputs))};
}

}  // namespace

Tensors Dispatched::forward(const BiasedArguments& a) {
  static const auto op = operator_handle<&Flat::attention_forward>("sape2::_attention_forward");
  return list(op.call(a.q, a.k, a.v, or_nothing(a.ux), or_nothing(a.uy), a.grid.rows, a.grid.cols,
                      a.grid.prefix, name_of(a.form), a.scale, or_nothing(a.gain), a.bias_inside));
}

Tensors Dispatched::backward(const BackwardInputs& in, const BiasedArguments& a) {
  static const auto op = operator_handle<&Flat::attention_backward>("sape2::_attention_backward");
  return op.call(in.grads, in.outputs, in.wanted, a.q, a.k, a.v, or_nothing(a.ux), or_nothing(a.uy),
                 a.grid.rows, a.grid.cols, a.grid.prefix, name_of(a.form), a.scale,
                 or_nothing(a.gain), a.bias_inside);
}

Tensors Dispatched::forward(const Sape2Arguments& a) {
  static const auto op = operator_handle<&Flat::sape2_forward>("sape2::_sape2_attention_forward");
  const auto& s = a.vectors;
  return list(op.call(s.q, s.k, a.v, s.ex, s.ey, s.grid.rows, s.grid.cols, s.grid.prefix, s.mode,
                      s.span, name_of(a.form), a.scale, or_nothing(s.gate_scale),
                      or_nothing(s.gate_offset), or_nothing(a.gain), a.bias_inside, a.kept));
}

Tensors Dispatched::backward(const BackwardInputs& in, const Sape2Arguments& a) {
  static const auto op = operator_handle<&Flat::sape2_backward>("sape2::_sape2_attention_backward");
  const auto& s = a.vectors;
  return op.call(in.grads, in.outputs, in.wanted, s.q, s.k, a.v, s.ex, s.ey, s.grid.rows,
                 s.grid.cols, s.grid.prefix, s.mode, s.span, name_of(a.form), a.scale,
                 or_nothing(s.gate_scale), or_nothing(s.gate_offset), or_nothing(a.gain),
                 a.bias_inside, a.kept);
}

// Compiled graphs see one operator each way, with no copy of the gradient behind it. To others it
// would be one more step on the way to that of the thirds.
Tensors Dispatched::forward(const PackedArguments& packed) {
  if (!is_traced(packed.qkv)) return PackedBackend::forward(packed);
  static const auto op =
      operator_handle<&Flat::packed_forward>("sape2::_packed_sape2_attention_forward");
  const auto& a = packed.split;
  const auto& s = a.vectors;
  return list(op.call(packed.qkv, packed.heads, s.ex, s.ey, s.grid.rows, s.grid.cols, s.grid.prefix,
                      s.mode, s.span, name_of(a.form), a.scale, or_nothing(s.gate_scale),
                      packed.has_quotient ? 1.0 : a.gate_divisor, or_nothing(s.gate_offset),
                      or_nothing(a.gain), a.bias_inside, a.kept));
}

Tensors Dispatched::backward(const BackwardInputs& in, const PackedArguments& packed) {
  if (!is_traced(packed.qkv)) return PackedBackend::backward(in, packed);
  static const auto op =
      operator_handle<&Flat::packed_backward>("sape2::_packed_sape2_attention_backward");
  const auto& a = packed.split;
  const auto& s = a.vectors;
  return op.call(in.grads, in.outputs, in.wanted, packed.qkv, packed.heads, s.ex, s.ey, s.grid.rows,
                 s.grid.cols, s.grid.prefix, s.mode, s.span, name_of(a.form), a.scale,
                 or_nothing(s.gate_scale), packed.has_quotient ? 1.0 : a.gate_divisor,
                 or_nothing(s.gate_offset), or_nothing(a.gain), a.bias_inside, a.kept);
}

Tensors Dispatched::forward(const CopeArguments& a) {
  static const auto op = operator_handle<&Flat::cope_forward>("sape2::_cope_attention_forward");
  return list(op.call(a.q, a.k, a.v, a.e, a.scale));
}

Tensors Dispatched::backward(const BackwardInputs& in, const CopeArguments& a) {
  static const auto op = operator_handle<&Flat::cope_backward>("sape2::_cope_attention_backward");
  return op.call(in.grads, in.outputs, in.wanted, a.q, a.k, a.v, a.e, a.scale);
}

Tensors Dispatched::forward(const VectorArguments& a) {
  static const auto op = operator_handle<&Flat::vectors_forward>("sape2::_sape2_vectors_forward");
  return list(op.call(a.q, a.k, a.ex, a.ey, a.grid.rows, a.grid.cols, a.grid.prefix, a.mode, a.span,
                      or_nothing(a.gate_scale), or_nothing(a.gate_offset)));
}

Tensors Dispatched::backward(const BackwardInputs& in, const VectorArguments& a) {
  static const auto op = operator_handle<&Flat::vectors_backward>("sape2::_sape2_vectors_backward");
  return op.call(in.grads, in.outputs, in.wanted, a.q, a.k, a.ex, a.ey, a.grid.rows, a.grid.cols,
                 a.grid.prefix, a.mode, a.span, or_nothing(a.gate_scale),
                 or_nothing(a.gate_offset));
}

Tensors Dispatched::forward(const BiasArguments& a) {
  static const auto op = operator_handle<&Flat::bias_forward>("sape2::_bias_forward");
  return {op.call(a.ux, a.uy, a.grid.rows, a.grid.cols, a.grid.prefix, name_of(a.form))};
}

Tensors Dispatched::backward(const BackwardInputs& in, const BiasArguments& a) {
  static const auto op = operator_handle<&Flat::bias_backward>("sape2::_bias_backward");
  return op.call(in.grads, in.outputs, in.wanted, a.ux, a.uy, a.grid.rows, a.grid.cols,
                 a.grid.prefix, name_of(a.form));
}

}  // namespace sape2::ops
