// Under autocast the operators compute in its type, as scaled_dot_product_attention does: tokens
// and given vectors are cast, tables, gates and gains stay in the type they are learnt in.
#include "ops/operators/public_ops.h"

#include <ATen/autocast_mode.h>
#include <torch/library.h>

namespace sape2::ops {
namespace {

using at::Tensor;

template <c10::DeviceType Device>
struct Autocast {
  static Tensor lower(const Tensor& tensor) {
    return at::autocast::cached_cast(at::autocast::get_lower_precision_fp_from_device_type(Device),
                                     tensor, Device);
  }

  /// What runs below is not cast again.
  struct Off {
    c10::impl::ExcludeDispatchKeyGuard guard{
        at::autocast::get_autocast_dispatch_key_from_device_type(Device)};
  };

  static Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v,
                          Optional<double> scale) {
    const Off off;
    return public_ops::attention(lower(q), lower(k), lower(v), scale);
  }

  static Tensor sape2_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& ex,
                                const Tensor& ey, int64_t rows, int64_t cols, int64_t prefix,
                                std::string mode, std::string span, std::string form,
                                Optional<double> scale, const OptionalTensor& gate_scale,
                                const OptionalTensor& gate_offset, const OptionalTensor& gain,
                                bool bias_inside) {
    const Off off;
    return public_ops::sape2_attention(lower(q), lower(k), lower(v), ex, ey, rows, cols, prefix,
                                       mode, span, form, scale, gate_scale, gate_offset, gain,
                                       bias_inside);
  }

  static Tensor sape2_attention_in_order(const Tensor& q, const Tensor& k, const Tensor& v,
                                         const Tensor& ex, const Tensor& ey, int64_t rows,
                                         int64_t cols, int64_t prefix, std::string mode,
                                         std::string span, std::string form, Optional<double> scale,
                                         const OptionalTensor& gate_scale, double gate_divisor,
                                         const OptionalTensor& gate_offset,
                                         const OptionalTensor& gain, bool bias_inside) {
    const Off off;
    return public_ops::sape2_attention_in_order(
        lower(q), lower(k), lower(v), ex, ey, rows, cols, prefix, std::move(mode), std::move(span),
        std::move(form), scale, gate_scale, gate_divisor, gate_offset, gain, bias_inside);
  }

  static Tensor packed_sape2_attention(const Tensor& qkv, int64_t heads, const Tensor& ex,
                                       const Tensor& ey, int64_t rows, int64_t cols, int64_t prefix,
                                       std::string mode, std::string span, std::string form,
                                       Optional<double> scale, const OptionalTensor& gate_scale,
                                       double gate_divisor, const OptionalTensor& gate_offset,
                                       const OptionalTensor& gain, bool bias_inside) {
    const Off off;
    return public_ops::packed_sape2_attention(
        lower(qkv), heads, ex, ey, rows, cols, prefix, std::move(mode), std::move(span),
        std::move(form), scale, gate_scale, gate_divisor, gate_offset, gain, bias_inside);
  }

  static std::tuple<Tensor, Tensor> sape2_vectors(const Tensor& q, const Tensor& k,
                                                  const Tensor& ex, const Tensor& ey, int64_t rows,
                                                  int64_t cols, int64_t prefix, std::string mode,
                                                  std::string span,
                                                  const OptionalTensor& gate_scale,
                                                  const OptionalTensor& gate_offset) {
    const Off off;
    return public_ops::sape2_vectors(lower(q), lower(k), ex, ey, rows, cols, prefix, mode, span,
                                     gate_scale, gate_offset);
  }

  static Tensor sape2_bias(const Tensor& q, const Tensor& k, const Tensor& ex, const Tensor& ey,
                           int64_t rows, int64_t cols, int64_t prefix, std::string mode,
                           std::string span, const OptionalTensor& gate_scale,
                           const OptionalTensor& gate_offset, std::string form) {
    const Off off;
    return public_ops::sape2_bias(lower(q), lower(k), ex, ey, rows, cols, prefix, mode, span,
                                  gate_scale, gate_offset, form);
  }

  template <auto Attention>
  static Tensor with_vectors(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& ux,
                             const Tensor& uy, int64_t rows, int64_t cols, int64_t prefix,
                             Optional<double> scale, const OptionalTensor& gain, bool bias_inside) {
    const Off off;
    return Attention(lower(q), lower(k), lower(v), lower(ux), lower(uy), rows, cols, prefix, scale,
                     gain, bias_inside);
  }

  static Tensor cope_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& e,
                               Optional<double> scale) {
    const Off off;
    return public_ops::cope_attention(lower(q), lower(k), lower(v), e, scale);
  }

  static void implement(torch::Library& m) {
    m.impl("attention", &Autocast::attention);
    m.impl("sape2_attention", &Autocast::sape2_attention);
    m.impl("_sape2_attention", &Autocast::sape2_attention_in_order);
    m.impl("_packed_sape2_attention", &Autocast::packed_sape2_attention);
    m.impl("sape2_vectors", &Autocast::sape2_vectors);
    m.impl("sape2_bias", &Autocast::sape2_bias);
    m.impl("distance_attention", &Autocast::with_vectors<&public_ops::distance_attention>);
    m.impl("axial_attention", &Autocast::with_vectors<&public_ops::axial_attention>);
    m.impl("cope_attention", &Autocast::cope_attention);
  }
};

}  // namespace

TORCH_LIBRARY_IMPL(sape2, AutocastCUDA, m) {
  Autocast<c10::DeviceType::CUDA>::implement(m);
}
TORCH_LIBRARY_IMPL(sape2, AutocastCPU, m) {
  Autocast<c10::DeviceType::CPU>::implement(m);
}

}  // namespace sape2::ops
