#pragma once

#include "sape2/ops/ops.h"

#include <ATen/ATen.h>

namespace sape2::testing {

/// The operators by their plain formulas with every intermediate result rounded to one type, as a
/// model written in ordinary operations of that type has them: the yardstick of kernels.
/// Differentiable.
class PlainFormula {
 public:
  explicit PlainFormula(at::ScalarType type) : type_(type) {}

  at::Tensor sape2_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const at::Tensor& ex, const at::Tensor& ey, const ops::Grid& grid,
                             const ops::VectorOptions& vectors, const std::string& form,
                             const ops::BiasOptions& bias) const;

  at::Tensor cope_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const at::Tensor& e, double scale) const;

 private:
  /// Values live in float32 tensors that hold numbers of the type; gradients are rounded on their
  /// way back too.
  at::Tensor rounded(const at::Tensor& x) const { return x.to(type_).to(at::kFloat); }
  at::Tensor product(const at::Tensor& a, const at::Tensor& b) const;
  at::Tensor sums_from_the_end(const at::Tensor& gates) const;
  at::Tensor positions(const at::Tensor& gates, const std::string& span) const;
  at::Tensor interpolated(const at::Tensor& z, const at::Tensor& p, int64_t origin) const;
  at::Tensor axis(const at::Tensor& q, const at::Tensor& k, const at::Tensor& a, at::Tensor table,
                  const ops::VectorOptions& options) const;
  at::Tensor bias_of(const at::Tensor& q, const at::Tensor& k, const at::Tensor& a,
                     const at::Tensor& ex, const at::Tensor& ey, const ops::Grid& grid,
                     const ops::VectorOptions& options, const std::string& form) const;

  at::ScalarType type_;
};

}  // namespace sape2::testing
