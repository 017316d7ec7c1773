#include "sape2/ops/ops.h"

#include "ops/dispatcher/operator_handle.h"
#include "ops/operators/public_ops.h"
#include "ops/reference_guard.h"

#include <ATen/ATen.h>

namespace sape2::ops {
namespace {

thread_local bool guarded = false;

Optional<double> or_default(double scale) {
  return scale == 0 ? Optional<double>() : Optional<double>(scale);
}

}  // namespace

at::Tensor VectorOptions::divided_gate_scale() const {
  return gate_divisor == 1 || !gate_scale.defined() ? gate_scale : gate_scale / gate_divisor;
}

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double scale) {
  static const auto op = operator_handle<&public_ops::attention>("sape2::attention");
  return op.call(q, k, v, or_default(scale));
}

at::Tensor sape2_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const at::Tensor& ex, const at::Tensor& ey, const Grid& grid,
                           const VectorOptions& vectors, const std::string& form,
                           const BiasOptions& bias) {
  static const auto op =
      operator_handle<&public_ops::sape2_attention_in_order>("sape2::_sape2_attention");
  return op.call(q, k, v, ex, ey, grid.rows, grid.cols, grid.prefix, vectors.mode, vectors.span,
                 form, or_default(bias.scale), or_nothing(vectors.gate_scale), vectors.gate_divisor,
                 or_nothing(vectors.gate_offset), or_nothing(bias.gain), bias.bias_inside);
}

at::Tensor packed_sape2_attention(const at::Tensor& qkv, int64_t heads, const at::Tensor& ex,
                                  const at::Tensor& ey, const Grid& grid,
                                  const VectorOptions& vectors, const std::string& form,
                                  const BiasOptions& bias) {
  static const auto op =
      operator_handle<&public_ops::packed_sape2_attention>("sape2::_packed_sape2_attention");
  return op.call(qkv, heads, ex, ey, grid.rows, grid.cols, grid.prefix, vectors.mode, vectors.span,
                 form, or_default(bias.scale), or_nothing(vectors.gate_scale), vectors.gate_divisor,
                 or_nothing(vectors.gate_offset), or_nothing(bias.gain), bias.bias_inside);
}

std::pair<at::Tensor, at::Tensor> sape2_vectors(const at::Tensor& q, const at::Tensor& k,
                                                const at::Tensor& ex, const at::Tensor& ey,
                                                const Grid& grid, const VectorOptions& vectors) {
  static const auto op = operator_handle<&public_ops::sape2_vectors>("sape2::sape2_vectors");
  const auto [ux, uy] =
      op.call(q, k, ex, ey, grid.rows, grid.cols, grid.prefix, vectors.mode, vectors.span,
              or_nothing(vectors.divided_gate_scale()), or_nothing(vectors.gate_offset));
  return {ux, uy};
}

at::Tensor distance_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const at::Tensor& ux, const at::Tensor& uy, const Grid& grid,
                              const BiasOptions& bias) {
  static const auto op =
      operator_handle<&public_ops::distance_attention>("sape2::distance_attention");
  return op.call(q, k, v, ux, uy, grid.rows, grid.cols, grid.prefix, or_default(bias.scale),
                 or_nothing(bias.gain), bias.bias_inside);
}

at::Tensor axial_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const at::Tensor& zx, const at::Tensor& zy, const Grid& grid,
                           const BiasOptions& bias) {
  static const auto op = operator_handle<&public_ops::axial_attention>("sape2::axial_attention");
  return op.call(q, k, v, zx, zy, grid.rows, grid.cols, grid.prefix, or_default(bias.scale),
                 or_nothing(bias.gain), bias.bias_inside);
}

at::Tensor sape2_bias(const at::Tensor& q, const at::Tensor& k, const at::Tensor& ex,
                      const at::Tensor& ey, const Grid& grid, const VectorOptions& vectors,
                      const std::string& form) {
  static const auto op = operator_handle<&public_ops::sape2_bias>("sape2::sape2_bias");
  return op.call(q, k, ex, ey, grid.rows, grid.cols, grid.prefix, vectors.mode, vectors.span,
                 or_nothing(vectors.divided_gate_scale()), or_nothing(vectors.gate_offset), form);
}

at::Tensor cope_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const at::Tensor& e, double scale) {
  static const auto op = operator_handle<&public_ops::cope_attention>("sape2::cope_attention");
  return op.call(q, k, v, e, or_default(scale));
}

at::Tensor rope(const at::Tensor& x, int64_t prefix) {
  static const auto op = operator_handle<&public_ops::rope>("sape2::rope");
  return op.call(x, prefix);
}

at::Tensor rope2d(const at::Tensor& x, const Grid& grid) {
  static const auto op = operator_handle<&public_ops::rope2d>("sape2::rope2d");
  return op.call(x, grid.rows, grid.cols, grid.prefix);
}

at::Tensor rope2d_mixed(const at::Tensor& x, const at::Tensor& fx, const at::Tensor& fy,
                        const Grid& grid) {
  static const auto op = operator_handle<&public_ops::rope2d_mixed>("sape2::rope2d_mixed");
  return op.call(x, fx, fy, grid.rows, grid.cols, grid.prefix);
}

ReferenceGuard::ReferenceGuard() : before_(guarded) {
  guarded = true;
}

ReferenceGuard::~ReferenceGuard() {
  guarded = before_;
}

bool reference_only() {
  return guarded;
}

}  // namespace sape2::ops
