#include "ops/backends/cpu_backend.h"

#include "sape2/kernels/cope.h"

#include "ops/backends/kept_vectors.h"
#include "ops/backends/kernel_views.h"
#include "ops/backends/reference_backend.h"
#include "ops/packed_heads.h"
#include "ops/reference_guard.h"

#include <ATen/ATen.h>

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

/// Collects the wanted gradients in the order of the arguments' tensors.
class Gradients {
 public:
  explicit Gradients(const BackwardInputs& in) : in_(in) {}

  /// A tensor for the kernel to write the gradient of the `index`-th tensor into, or an undefined
  /// one.
  Tensor like(size_t index, const Tensor& tensor) const {
    return in_.wants(index) ? at::empty(tensor.sizes(), tensor.options()) : Tensor();
  }
  Tensor floats_like(size_t index, at::IntArrayRef shape) const {
    return in_.wants(index) ? empty_floats(shape) : Tensor();
  }
  void add(const Tensor& gradient) {
    if (gradient.defined()) list_.push_back(gradient);
  }
  void add_parameter(const Tensor& gradient, const Tensor& parameter) {
    if (gradient.defined()) list_.push_back(like_parameter(gradient, parameter));
  }
  Tensors list() { return std::move(list_); }

 private:
  const BackwardInputs& in_;
  Tensors list_;
};

/// q, k and v for the kernels, and the tensors that keep their memory alive.
struct Inputs {
  Inputs(const Tensor& q_in, const Tensor& k_in, const Tensor& v_in, const Grid& grid, double scale)
      : q(with_contiguous_rows(q_in)),
        k(with_contiguous_rows(k_in)),
        v(with_contiguous_rows(v_in)),
        params{kernel_shape(q, grid), kernel_type(q), float(scale),
               const_view(q),         const_view(k),  const_view(v)} {}
  Tensor q, k, v;
  kernels::AttentionInputs params;
};

/// (B, h, N, 2) floats as the kernels' pairs.
kernels::SoftmaxRow* softmax_rows(const Tensor& softmax) {
  return reinterpret_cast<kernels::SoftmaxRow*>(softmax.data_ptr<float>());
}

struct Outputs {
  explicit Outputs(const Tensor& q)
      : out(empty_output(q)),
        softmax(empty_floats({q.size(0), q.size(1), q.size(2), 2})),
        params{view(out), softmax_rows(softmax)} {}
  Tensor out, softmax;
  kernels::AttentionOutputs params;
};

/// What a backward kernel reads besides the inputs.
struct Saved {
  explicit Saved(const BackwardInputs& in)
      : out(with_contiguous_rows(in.outputs[0])),
        softmax(in.outputs[1].contiguous()),
        dout(with_contiguous_rows(in.grads[0])),
        params{const_view(out), softmax_rows(softmax), const_view(dout)} {}
  Tensor out, softmax, dout;
  kernels::AttentionSaved params;
};

/// The first three gradients of every attention: dq, dk, dv.
struct QkvGradients {
  QkvGradients(const BackwardInputs& in, const Inputs& inputs) {
    auto all = empty_like_heads(inputs.q, inputs.k, inputs.v, in.may_share());
    if (in.wants(0)) dq = all[0];
    if (in.wants(1)) dk = all[1];
    if (in.wants(2)) dv = all[2];
    params = {view(dq), view(dk), view(dv)};
  }
  void add_to(Gradients& gradients) const {
    for (const auto& gradient : {dq, dk, dv}) gradients.add(gradient);
  }
  Tensor dq, dk, dv;
  kernels::AttentionGradients params;
};

struct BiasParameters {
  BiasParameters(const Tensor& gain_in, bool inside, const Tensor& q)
      : gain(floats_per_head_or(1, gain_in, q)), params{gain.data_ptr<float>(), inside} {}
  Tensor gain;
  kernels::Bias params;
};

/// Axis vectors given by the caller, in the type of q.
struct GivenVectors {
  explicit GivenVectors(const BiasedArguments& a)
      : ux(a.ux.contiguous()),
        uy(a.uy.contiguous()),
        params{a.ux.dim() == 5 ? 2 : 1, ux.data_ptr(), uy.data_ptr()} {}
  Tensor ux, uy;
  kernels::AxisVectors params;
};

/// Gates and tables of stage 1, as float32.
struct EncodingParameters {
  explicit EncodingParameters(const VectorArguments& a)
      : ex(as_floats(a.ex)),
        ey(as_floats(a.ey)),
        gate_scale(floats_per_head_or(1 / std::sqrt(double(a.q.size(3))), a.gate_scale, a.q)),
        gate_offset(floats_per_head_or(0, a.gate_offset, a.q)) {
    params.source =
        a.has_both() ? kernels::Source::qk : (a.has_q() ? kernels::Source::q : kernels::Source::k);
    params.span = a.span == "suffix" ? kernels::Span::suffix : kernels::Span::between;
    params.positions = ex.size(-2);
    params.tables_per_head = ex.dim() - (a.has_both() ? 1 : 0) == 3;
    params.gate_scale = gate_scale.data_ptr<float>();
    params.gate_offset = gate_offset.data_ptr<float>();
    const auto part = [&](int64_t index) {
      const int64_t offset = index * (ex.numel() / 2);
      return kernels::Tables{ex.data_ptr<float>() + offset, ey.data_ptr<float>() + offset};
    };
    if (a.has_q()) params.q_tables = part(0);
    if (!a.has_q() || a.has_both()) params.k_tables = part(a.has_both() ? 1 : 0);
  }
  Tensor ex, ey, gate_scale, gate_offset;
  kernels::Encoding params;
};

/// Gradients of the stage-1 parameters, whose first is the `first`-th tensor of the arguments.
struct EncodingGradients {
  EncodingGradients(const Gradients& gradients, size_t first, const VectorArguments& a)
      : dex(gradients.floats_like(first, a.ex.sizes())),
        dey(gradients.floats_like(first + 1, a.ey.sizes())),
        dgate_scale(gradients.floats_like(first + 2, {a.q.size(1)})),
        dgate_offset(gradients.floats_like(first + 3, {a.q.size(1)})) {
    const auto part = [&](int64_t index) {
      const int64_t offset = index * (a.ex.numel() / 2);
      const auto at = [&](const Tensor& t) { return t.defined() ? floats(t) + offset : nullptr; };
      return kernels::TableGradients{at(dex), at(dey)};
    };
    if (a.has_q()) params.q_tables = part(0);
    if (!a.has_q() || a.has_both()) params.k_tables = part(a.has_both() ? 1 : 0);
    params.dgate_scale = floats(dgate_scale);
    params.dgate_offset = floats(dgate_offset);
  }
  void add_to(Gradients& gradients, const VectorArguments& a) const {
    gradients.add_parameter(dex, a.ex);
    gradients.add_parameter(dey, a.ey);
    gradients.add_parameter(dgate_scale, a.gate_scale);
    gradients.add_parameter(dgate_offset, a.gate_offset);
  }
  Tensor dex, dey, dgate_scale, dgate_offset;
  kernels::EncodingGradients params;
};

kernels::Form kernel_form(Form form) {
  return form == Form::distance ? kernels::Form::distance : kernels::Form::direct;
}

/// Plain attention has no grid: its tokens are one row.
Grid grid_of(const BiasedArguments& a) {
  return a.form == Form::none ? Grid{1, a.q.size(2), 0} : a.grid;
}

/// The kernels read vectors of q's type; wider ones under 16-bit tokens would lose digits there.
bool vectors_fit(const BiasedArguments& a) {
  return a.form == Form::none || a.ux.scalar_type() == a.q.scalar_type();
}

}  // namespace

Tensors CpuBackend::forward(const BiasedArguments& a) {
  if (!fused(a.q, a.scale) || !has_kernel(a.form) || !vectors_fit(a))
    return ReferenceBackend::forward(a);
  const Inputs inputs(a.q, a.k, a.v, grid_of(a), a.scale);
  const Outputs outputs(a.q);
  if (a.form == Form::none) {
    kernels::plain_attention_forward(inputs.params, outputs.params, kThreads);
  } else {
    const GivenVectors vectors(a);
    const BiasParameters bias(a.gain, a.bias_inside, a.q);
    kernels::axis_bias_attention_forward(inputs.params, vectors.params, kernel_form(a.form),
                                         bias.params, outputs.params, kThreads);
  }
  return {outputs.out, outputs.softmax};
}

Tensors CpuBackend::backward(const BackwardInputs& in, const BiasedArguments& a) {
  if (!fused(a.q, a.scale) || !has_kernel(a.form) || !vectors_fit(a))
    return ReferenceBackend::backward(in, a);
  const Inputs inputs(a.q, a.k, a.v, grid_of(a), a.scale);
  const Saved saved(in);
  Gradients gradients(in);
  const QkvGradients qkv(in, inputs);
  if (a.form == Form::none) {
    kernels::plain_attention_backward(inputs.params, saved.params, qkv.params, kThreads);
    qkv.add_to(gradients);
    return gradients.list();
  }
  const GivenVectors vectors(a);
  const BiasParameters bias(a.gain, a.bias_inside, a.q);
  const auto dux = gradients.like(3, vectors.ux), duy = gradients.like(4, vectors.uy);
  const auto dgain = gradients.floats_like(5, {a.q.size(1)});
  const auto data = [](const Tensor& t) { return t.defined() ? t.data_ptr() : nullptr; };
  kernels::axis_bias_attention_backward(inputs.params, vectors.params, kernel_form(a.form),
                                        bias.params, saved.params, qkv.params,
                                        {data(dux), data(duy), floats(dgain)}, kThreads);
  qkv.add_to(gradients);
  gradients.add(dux);
  gradients.add(duy);
  gradients.add_parameter(dgain, a.gain);
  return gradients.list();
}

Tensors CpuBackend::forward(const Sape2Arguments& a) {
  const auto& s = a.vectors;
  if (!fused(s.q, a.scale) || !has_kernel(a.form)) return ReferenceBackend::forward(a);
  const Inputs inputs(s.q, s.k, a.v, s.grid, a.scale);
  const EncodingParameters encoding(s);
  const BiasParameters bias(a.gain, a.bias_inside, s.q);
  const Outputs outputs(s.q);
  kernels::sape2_attention_forward(inputs.params, encoding.params, kernel_form(a.form), bias.params,
                                   outputs.params, kThreads);
  return {outputs.out, outputs.softmax, empty_kept(a)};
}

Tensors CpuBackend::backward(const BackwardInputs& in, const Sape2Arguments& a) {
  const auto& s = a.vectors;
  if (!fused(s.q, a.scale) || !has_kernel(a.form)) return ReferenceBackend::backward(in, a);
  const Inputs inputs(s.q, s.k, a.v, s.grid, a.scale);
  const EncodingParameters encoding(s);
  const BiasParameters bias(a.gain, a.bias_inside, s.q);
  const Saved saved(in);
  Gradients gradients(in);
  const QkvGradients qkv(in, inputs);
  const EncodingGradients parameters(gradients, 3, s);
  const auto dgain = gradients.floats_like(7, {s.q.size(1)});
  kernels::sape2_attention_backward(inputs.params, encoding.params, kernel_form(a.form),
                                    bias.params, saved.params, qkv.params, parameters.params,
                                    floats(dgain), kThreads);
  qkv.add_to(gradients);
  parameters.add_to(gradients, s);
  gradients.add_parameter(dgain, a.gain);
  return gradients.list();
}

Tensors CpuBackend::forward(const CopeArguments& a) {
  if (!fused(a.q, a.scale)) return ReferenceBackend::forward(a);
  const Inputs inputs(a.q, a.k, a.v, Grid{1, a.q.size(2), 0}, a.scale);
  const auto e = as_floats(a.e);
  const Outputs outputs(a.q);
  kernels::cope_attention_forward(inputs.params, {e.size(0), floats(e), float(a.scale)},
                                  outputs.params, kThreads);
  return {outputs.out, outputs.softmax};
}

Tensors CpuBackend::backward(const BackwardInputs& in, const CopeArguments& a) {
  if (!fused(a.q, a.scale)) return ReferenceBackend::backward(in, a);
  const Inputs inputs(a.q, a.k, a.v, Grid{1, a.q.size(2), 0}, a.scale);
  const auto e = as_floats(a.e);
  const Saved saved(in);
  Gradients gradients(in);
  const QkvGradients qkv(in, inputs);
  const auto de = gradients.floats_like(3, a.e.sizes());
  kernels::cope_attention_backward(inputs.params, {e.size(0), floats(e), float(a.scale)},
                                   saved.params, qkv.params, floats(de), kThreads);
  qkv.add_to(gradients);
  gradients.add_parameter(de, a.e);
  return gradients.list();
}

Tensors CpuBackend::forward(const VectorArguments& a) {
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

Tensors CpuBackend::backward(const BackwardInputs& in, const VectorArguments& a) {
  if (!fused(a.q)) return ReferenceBackend::backward(in, a);
  const auto q = with_contiguous_rows(a.q), k = with_contiguous_rows(a.k);
  const EncodingParameters encoding(a);
  const auto dux = in.grads[0].contiguous(), duy = in.grads[1].contiguous();
  Gradients gradients(in);
  const auto dq = gradients.like(0, q), dk = gradients.like(1, k);
  const EncodingGradients parameters(gradients, 2, a);
  kernels::sape2_vectors_backward(
      {kernel_shape(q, a.grid), kernel_type(q), const_view(q), const_view(k)}, encoding.params,
      {dux.data_ptr(), duy.data_ptr()}, {view(dq), view(dk)}, parameters.params, kThreads);
  gradients.add(dq);
  gradients.add(dk);
  parameters.add_to(gradients, a);
  return gradients.list();
}

// The stored bias is for looking at: the plain formula is its only implementation.
Tensors CpuBackend::forward(const BiasArguments& a) {
  return ReferenceBackend::forward(a);
}
Tensors CpuBackend::backward(const BackwardInputs& in, const BiasArguments& a) {
  return ReferenceBackend::backward(in, a);
}

}  // namespace sape2::ops
