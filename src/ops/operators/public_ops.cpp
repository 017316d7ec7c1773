#include "ops/operators/public_ops.h"

#include "ops/backends/kept_vectors.h"
#include "ops/checks/checks.h"
#include "ops/operators/autograd.h"
#include "ops/packed_heads.h"
#include "ops/sizes.h"

#include <cmath>

namespace sape2::ops::public_ops {
namespace {

/// The default 1/√d; a tensor that is not even of four axes is the checks' business.
double scale_or_default(const Optional<double>& scale, const Tensor& q) {
  if (scale.has_value()) return *scale;
  if (!q.defined() || q.is_nested() || q.dim() != 4) return 1;
  const int64_t head_size = size_of(q, 3);
  return head_size > 0 ? 1 / std::sqrt(double(head_size)) : 1;
}

template <class Arguments>
Tensor checked_attention(const char* op, const Arguments& a) {
  check(op, a);
  return differentiable(a, 1)[0];
}

}  // namespace

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, Optional<double> scale) {
  return checked_attention(
      "attention", BiasedArguments{.q = q, .k = k, .v = v, .scale = scale_or_default(scale, q)});
}

Tensor sape2_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& ex,
                       const Tensor& ey, int64_t rows, int64_t cols, int64_t prefix,
                       std::string mode, std::string span, std::string form, Optional<double> scale,
                       const OptionalTensor& gate_scale, const OptionalTensor& gate_offset,
                       const OptionalTensor& gain, bool bias_inside) {
  return sape2_attention_in_order(q, k, v, ex, ey, rows, cols, prefix, std::move(mode),
                                  std::move(span), std::move(form), scale, gate_scale,
                                  /*gate_divisor=*/1, gate_offset, gain, bias_inside);
}

Tensor sape2_attention_in_order(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& ex,
                                const Tensor& ey, int64_t rows, int64_t cols, int64_t prefix,
                                std::string mode, std::string span, std::string form,
                                Optional<double> scale, const OptionalTensor& gate_scale,
                                double gate_divisor, const OptionalTensor& gate_offset,
                                const OptionalTensor& gain, bool bias_inside) {
  const char* op = "sape2_attention";
  Sape2Arguments a{
      VectorArguments{q, k, ex, ey, Grid{rows, cols, prefix}, std::move(mode), std::move(span),
                      or_undefined(gate_scale), or_undefined(gate_offset)},
      v,
      parse_form(op, form),
      scale_or_default(scale, q),
      or_undefined(gain),
      bias_inside,
      /*kept=*/0,
      gate_divisor};
  check(op, a);
  if (a.form == Form::paths) {
    // Stage 1 is the fused one, stage 2 the plain formula.
    if (divides_gates(a)) a.vectors.gate_scale = a.vectors.gate_scale / gate_divisor;
    const auto vectors = differentiable(a.vectors, 2);
    return differentiable(BiasedArguments{q, k, v, vectors[0], vectors[1], a.vectors.grid, a.form,
                                          a.scale, a.gain, a.bias_inside},
                          1)[0];
  }
  if (goes_back(a)) a.kept = bytes_to_keep(a);
  return differentiable(a, 1)[0];
}

Tensor packed_sape2_attention(const Tensor& qkv, int64_t heads, const Tensor& ex, const Tensor& ey,
                              int64_t rows, int64_t cols, int64_t prefix, std::string mode,
                              std::string span, std::string form, Optional<double> scale,
                              const OptionalTensor& gate_scale, double gate_divisor,
                              const OptionalTensor& gate_offset, const OptionalTensor& gain,
                              bool bias_inside) {
  const char* op = "packed_sape2_attention";
  check_packed(op, qkv, heads);
  refuse_other_derivatives({qkv});
  PackedArguments a{.qkv = qkv, .heads = heads};
  a.split.vectors = {{},
                     {},
                     ex,
                     ey,
                     Grid{rows, cols, prefix},
                     std::move(mode),
                     std::move(span),
                     or_undefined(gate_scale),
                     or_undefined(gate_offset)};
  a.split.form = parse_form(op, form);
  a.split.scale = scale.value_or(1 / std::sqrt(double(size_of(qkv, 2) / 3 / heads)));
  a.split.gain = or_undefined(gain);
  a.split.bias_inside = bias_inside;
  a.split.gate_divisor = gate_divisor;
  check(op, a);
  if (qkv.is_cuda() && goes_back(a)) a.split.kept = bytes_to_keep(with_thirds(a));
  return differentiable(a, 1)[0];
}

std::tuple<Tensor, Tensor> sape2_vectors(const Tensor& q, const Tensor& k, const Tensor& ex,
                                         const Tensor& ey, int64_t rows, int64_t cols,
                                         int64_t prefix, std::string mode, std::string span,
                                         const OptionalTensor& gate_scale,
                                         const OptionalTensor& gate_offset) {
  const VectorArguments a{q,
                          k,
                          ex,
                          ey,
                          Grid{rows, cols, prefix},
                          mode,
                          span,
                          or_undefined(gate_scale),
                          or_undefined(gate_offset)};
  check("sape2_vectors", a);
  const auto vectors = differentiable(a, 2);
  return {vectors[0], vectors[1]};
}

Tensor distance_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& ux,
                          const Tensor& uy, int64_t rows, int64_t cols, int64_t prefix,
                          Optional<double> scale, const OptionalTensor& gain, bool bias_inside) {
  return checked_attention(
      "distance_attention",
      BiasedArguments{q, k, v, ux, uy, Grid{rows, cols, prefix}, Form::distance,
                      scale_or_default(scale, q), or_undefined(gain), bias_inside});
}

Tensor axial_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& zx,
                       const Tensor& zy, int64_t rows, int64_t cols, int64_t prefix,
                       Optional<double> scale, const OptionalTensor& gain, bool bias_inside) {
  return checked_attention(
      "axial_attention",
      BiasedArguments{q, k, v, zx, zy, Grid{rows, cols, prefix}, Form::direct,
                      scale_or_default(scale, q), or_undefined(gain), bias_inside});
}

Tensor sape2_bias(const Tensor& q, const Tensor& k, const Tensor& ex, const Tensor& ey,
                  int64_t rows, int64_t cols, int64_t prefix, std::string mode, std::string span,
                  const OptionalTensor& gate_scale, const OptionalTensor& gate_offset,
                  std::string form) {
  const char* op = "sape2_bias";
  const Grid grid{rows, cols, prefix};
  const VectorArguments a{
      q, k, ex, ey, grid, mode, span, or_undefined(gate_scale), or_undefined(gate_offset)};
  const Form bias_form = parse_form(op, form);
  check(op, a);
  const auto vectors = differentiable(a, 2);
  const BiasArguments bias{vectors[0], vectors[1], grid, bias_form};
  check(op, bias);
  return differentiable(bias, 1)[0];
}

Tensor cope_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& e,
                      Optional<double> scale) {
  return checked_attention("cope_attention", CopeArguments{q, k, v, e, scale_or_default(scale, q)});
}

}  // namespace sape2::ops::public_ops
