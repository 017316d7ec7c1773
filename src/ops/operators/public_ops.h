#pragma once

#include "ops/dispatcher/compat.h"

#include <string>
#include <tuple>

/// The public operators with the signatures of their schemas: they check their arguments and run
/// the internal operators under autograd.
namespace sape2::ops::public_ops {

using at::Tensor;

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, Optional<double> scale);

Tensor sape2_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& ex,
                       const Tensor& ey, int64_t rows, int64_t cols, int64_t prefix,
                       std::string mode, std::string span, std::string form, Optional<double> scale,
                       const OptionalTensor& gate_scale, const OptionalTensor& gate_offset,
                       const OptionalTensor& gain, bool bias_inside);

/// The same with all arguments in order, and gates that take gate_scale / gate_divisor.
Tensor sape2_attention_in_order(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& ex,
                                const Tensor& ey, int64_t rows, int64_t cols, int64_t prefix,
                                std::string mode, std::string span, std::string form,
                                Optional<double> scale, const OptionalTensor& gate_scale,
                                double gate_divisor, const OptionalTensor& gate_offset,
                                const OptionalTensor& gain, bool bias_inside);

/// The same of a projection's output [B, N, 3·h·d]; gives [B, N, h·d].
Tensor packed_sape2_attention(const Tensor& qkv, int64_t heads, const Tensor& ex, const Tensor& ey,
                              int64_t rows, int64_t cols, int64_t prefix, std::string mode,
                              std::string span, std::string form, Optional<double> scale,
                              const OptionalTensor& gate_scale, double gate_divisor,
                              const OptionalTensor& gate_offset, const OptionalTensor& gain,
                              bool bias_inside);

std::tuple<Tensor, Tensor> sape2_vectors(const Tensor& q, const Tensor& k, const Tensor& ex,
                                         const Tensor& ey, int64_t rows, int64_t cols,
                                         int64_t prefix, std::string mode, std::string span,
                                         const OptionalTensor& gate_scale,
                                         const OptionalTensor& gate_offset);

Tensor distance_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& ux,
                          const Tensor& uy, int64_t rows, int64_t cols, int64_t prefix,
                          Optional<double> scale, const OptionalTensor& gain, bool bias_inside);

Tensor axial_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& zx,
                       const Tensor& zy, int64_t rows, int64_t cols, int64_t prefix,
                       Optional<double> scale, const OptionalTensor& gain, bool bias_inside);

Tensor sape2_bias(const Tensor& q, const Tensor& k, const Tensor& ex, const Tensor& ey,
                  int64_t rows, int64_t cols, int64_t prefix, std::string mode, std::string span,
                  const OptionalTensor& gate_scale, const OptionalTensor& gate_offset,
                  std::string form);

Tensor cope_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& e,
                      Optional<double> scale);

Tensor rope(const Tensor& x, int64_t prefix);
Tensor rope2d(const Tensor& x, int64_t rows, int64_t cols, int64_t prefix);
Tensor rope2d_mixed(const Tensor& x, const Tensor& fx, const Tensor& fy, int64_t rows, int64_t cols,
                    int64_t prefix);

std::string kernel_for(std::string op, int64_t images, int64_t heads, int64_t rows, int64_t cols,
                       int64_t head_size, int64_t prefix, std::string dtype, std::string form,
                       std::string mode, Optional<std::string> span, int64_t positions,
                       bool backward, std::string device);

}  // namespace sape2::ops::public_ops
