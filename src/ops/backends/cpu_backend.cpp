#include "sape2/kernels/cope.h"

#include "ops/backends/kept_vectors.h"
#include "ops/backends/kernel_arguments.h"
#include "ops/backends/kernel_views.h"
#include "ops/backends/reference_backend.h"
#include "ops/packed_heads.h"
#include "ops/reference_guard.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>

#include <cmath>

namespace sape2::ops {
namespace {

const TorchExecutor kThreads;

/// Gradients of biases outside the scale are divided by it, so 0 and what float32 can hardly tell
/// from it are the plain formulas' business.
bool fused(const Tensor& q, double scale = 1) {
  const auto type = q.scalar_type();
  return !reference_only() && (type == at::kFloat || type == at::kBFloat16) &&
         std::isnormal(static_cast<float>(scale)) && q.size(3) <= kernels::kMaxHeadSize &&
         q.size(0) > 0;
}

Tensor empty_beside(const Tensor&, at::IntArrayRef sizes, at::ScalarType type) {
  return at::detail::empty_cpu(sizes, type);
}

struct Outputs : HeldOutputs {
  explicit Outputs(const Tensor& q)
      : HeldOutputs(q, empty_floats({q.size(0), q.size(1), q.size(2), 2})) {}
};

/// The first three gradients of every attention: dq, dk, dv.
kernels::AttentionGradients qkv_gradients(Gradients& gradients, const HeldInputs& inputs) {
  const auto all = empty_like_heads(inputs.q, inputs.k, inputs.v, gradients.may_share());
  const auto wanted = [&](size_t index, const Tensor& tensor) {
    return gradients.wants(index) ? view(gradients.keep(index, all[index], tensor))
                                  : kernels::View();
  };
  return {wanted(0, inputs.q), wanted(1, inputs.k), wanted(2, inputs.v)};
}

struct BiasParameters {
  BiasParameters(const Tensor& gain_in, bool inside, const Tensor& q)
      : gain(floats_per_head_or(1, gain_in, q)), params{gain.data_ptr<float>(), inside} {}
  Tensor gain;
  kernels::Bias params;
};

/// The CPU's kernels are always told the gates.
struct EncodingParameters : HeldEncoding {
  explicit EncodingParameters(const VectorArguments& a)
      : HeldEncoding(a, floats_per_head_or(1 / std::sqrt(double(a.q.size(3))), a.gate_scale, a.q),
                     floats_per_head_or(0, a.gate_offset, a.q)) {}
};

/// The kernels read vectors of q's type; wider ones under 16-bit tokens would lose digits there.
bool vectors_fit(const BiasedArguments& a) {
  return a.form == Form::none || a.ux.scalar_type() == a.q.scalar_type();
}

/// The fused kernels on the CPU, for float32 and bfloat16; everything else, and everything while a
/// ReferenceGuard lives, runs on the plain formulas.
struct CpuBackend {
  static Tensors forward(const BiasedArguments& a) {
    if (!fused(a.q, a.scale) || !has_kernel(a.form) || !vectors_fit(a))
      return ReferenceBackend::forward(a);
    const HeldInputs inputs(a.q, a.k, a.v, grid_of(a), a.scale);
    const Outputs outputs(a.q);
    if (a.form == Form::none) {
      kernels::plain_attention_forward(inputs.params, outputs.params, kThreads);
    } else {
      const HeldVectors vectors(a);
      const BiasParameters bias(a.gain, a.bias_inside, a.q);
      kernels::axis_bias_attention_forward(inputs.params, vectors.params, kernel_form(a.form),
                                           bias.params, outputs.params, kThreads);
    }
    return {outputs.out, outputs.softmax};
  }

  static Tensors backward(const BackwardInputs& in, const BiasedArguments& a) {
    if (!fused(a.q, a.scale) || !has_kernel(a.form) || !vectors_fit(a))
      return ReferenceBackend::backward(in, a);
    const HeldInputs inputs(a.q, a.k, a.v, grid_of(a), a.scale);
    const HeldSaved saved(in);
    Gradients gradients(in, empty_beside);
    const auto qkv = qkv_gradients(gradients, inputs);
    if (a.form == Form::none) {
      kernels::plain_attention_backward(inputs.params, saved.params, qkv, kThreads);
      return gradients.list();
    }
    const HeldVectors vectors(a);
    const BiasParameters bias(a.gain, a.bias_inside, a.q);
    const auto dux = gradients.like(3, vectors.ux), duy = gradients.like(4, vectors.uy);
    const auto dgain = gradients.floats_like(5, a.gain, {a.q.size(1)});
    kernels::axis_bias_attention_backward(inputs.params, vectors.params, kernel_form(a.form),
                                          bias.params, saved.params, qkv,
                                          {data(dux), data(duy), floats(dgain)}, kThreads);
    return gradients.list();
  }

  static Tensors forward(const Sape2Arguments& a) {
    const auto& s = a.vectors;
    if (!fused(s.q, a.scale) || !has_kernel(a.form)) return ReferenceBackend::forward(a);
    const HeldInputs inputs(s.q, s.k, a.v, s.grid, a.scale);
    const EncodingParameters encoding(s);
    const BiasParameters bias(a.gain, a.bias_inside, s.q);
    const Outputs outputs(s.q);
    kernels::sape2_attention_forward(inputs.params, encoding.params, kernel_form(a.form),
                                     bias.params, outputs.params, kThreads);
    return {outputs.out, outputs.softmax, empty_kept(a)};
  }

  static Tensors backward(const BackwardInputs& in, const Sape2Arguments& a) {
    const auto& s = a.vectors;
    if (!fused(s.q, a.scale) || !has_kernel(a.form)) return ReferenceBackend::backward(in, a);
    const HeldInputs inputs(s.q, s.k, a.v, s.grid, a.scale);
    const EncodingParameters encoding(s);
    const BiasParameters bias(a.gain, a.bias_inside, s.q);
    const HeldSaved saved(in);
    Gradients gradients(in, empty_beside);
    const auto qkv = qkv_gradients(gradients, inputs);
    const auto parameters = encoding_gradients(gradients, 3, s);
    const auto dgain = gradients.floats_like(7, a.gain, {s.q.size(1)});
    kernels::sape2_attention_backward(inputs.params, encoding.params, kernel_form(a.form),
                                      bias.params, saved.params, qkv, parameters, floats(dgain),
                                      kThreads);
    return gradients.list();
  }

  static Tensors forward(const CopeArguments& a) {
    if (!fused(a.q, a.scale)) return ReferenceBackend::forward(a);
    const HeldInputs inputs(a.q, a.k, a.v, in_one_row(a.q), a.scale);
    const auto e = as_floats(a.e);
    const Outputs outputs(a.q);
    kernels::cope_attention_forward(inputs.params, {e.size(0), floats(e), float(a.scale)},
                                    outputs.params, kThreads);
    return {outputs.out, outputs.softmax};
  }

  static Tensors backward(const BackwardInputs& in, const CopeArguments& a) {
    if (!fused(a.q, a.scale)) return ReferenceBackend::backward(in, a);
    const HeldInputs inputs(a.q, a.k, a.v, in_one_row(a.q), a.scale);
    const auto e = as_floats(a.e);
    const HeldSaved saved(in);
    Gradients gradients(in, empty_beside);
    const auto qkv = qkv_gradients(gradients, inputs);
    const auto de = gradients.floats_like(3, a.e, a.e.sizes());
    kernels::cope_attention_backward(inputs.params, {e.size(0), floats(e), float(a.scale)},
                                     saved.params, qkv, floats(de), kThreads);
    return gradients.list();
  }

  static Tensors forward(const VectorArguments& a) {
    if (!fused(a.q)) return ReferenceBackend::forward(a);
    const auto q = with_contiguous_rows(a.q), k = with_contiguous_rows(a.k);
    const EncodingParameters encoding(a);
    const auto empty = [&](int64_t length) {
      std::vector<int64_t> shape = {q.size(0), q.size(1), a.grid.patches(), length};
      if (a.has_both()) shape.insert(shape.begin(), 2);
      return at::empty(shape, q.options());
    };
    const auto ux = empty(a.grid.cols), uy = empty(a.grid.rows);
    kernels::sape2_vectors_forward(
        {kernel_shape(q, a.grid), kernel_type(q), const_view(q), const_view(k)}, encoding.params,
        {ux.data_ptr(), uy.data_ptr()}, kThreads);
    return {ux, uy};
  }

  static Tensors backward(const BackwardInputs& in, const VectorArguments& a) {
    if (!fused(a.q)) return ReferenceBackend::backward(in, a);
    const auto q = with_contiguous_rows(a.q), k = with_contiguous_rows(a.k);
    const EncodingParameters encoding(a);
    const auto dux = in.grads[0].contiguous(), duy = in.grads[1].contiguous();
    Gradients gradients(in, empty_beside);
    const auto dq = gradients.like(0, q), dk = gradients.like(1, k);
    const auto parameters = encoding_gradients(gradients, 2, a);
    kernels::sape2_vectors_backward(
        {kernel_shape(q, a.grid), kernel_type(q), const_view(q), const_view(k)}, encoding.params,
        {dux.data_ptr(), duy.data_ptr()}, {view(dq), view(dk)}, parameters, kThreads);
    return gradients.list();
  }

  // The stored bias is for looking at: the plain formula is its only implementation.
  static Tensors forward(const BiasArguments& a) { return ReferenceBackend::forward(a); }
  static Tensors backward(const BackwardInputs& in, const BiasArguments& a) {
    return ReferenceBackend::backward(in, a);
  }
};

}  // namespace

TORCH_LIBRARY_IMPL(sape2, CPU, m) {
  Kernels<CpuBackend>::implement(m);
}

}  // namespace sape2::ops
