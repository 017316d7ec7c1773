#include "ops/backends/kernel_arguments.h"

#include "ops/backends/kernel_views.h"
#include "ops/packed_heads.h"
#include "ops/sizes.h"

namespace sape2::ops {
namespace {

/// (B, h, N, 2) floats as the kernels' pairs.
kernels::SoftmaxRow* softmax_rows(const at::Tensor& softmax) {
  return static_cast<kernels::SoftmaxRow*>(softmax.data_ptr());
}

}  // namespace

HeldInputs::HeldInputs(const at::Tensor& q_in, const at::Tensor& k_in, const at::Tensor& v_in,
                       const Grid& grid, double scale, bool tf32)
    : q(with_contiguous_rows(q_in)),
      k(with_contiguous_rows(k_in)),
      v(with_contiguous_rows(v_in)),
      params{kernel_shape(q, grid), kernel_type(q), float(scale), const_view(q),
             const_view(k),         const_view(v),  tf32} {}

HeldOutputs::HeldOutputs(const at::Tensor& q, const at::Tensor& softmax_out)
    : out(empty_output(q)), softmax(softmax_out), params{view(out), softmax_rows(softmax)} {}

HeldSaved::HeldSaved(const BackwardInputs& in)
    : out(with_contiguous_rows(in.outputs[0])),
      softmax(in.outputs[1].contiguous()),
      dout(with_contiguous_rows(in.grads[0])),
      params{const_view(out), softmax_rows(softmax), const_view(dout)} {}

HeldVectors::HeldVectors(const BiasedArguments& a)
    : ux(a.ux.contiguous()),
      uy(a.uy.contiguous()),
      params{a.ux.dim() == 5 ? 2 : 1, ux.data_ptr(), uy.data_ptr()} {}

HeldEncoding::HeldEncoding(const VectorArguments& a, const at::Tensor& scale,
                           const at::Tensor& offset)
    : ex(as_floats(a.ex)),
      ey(as_floats(a.ey)),
      gate_scale(scale),
      gate_offset(offset),
      params(encoding_of(a)) {
  params.gate_scale = floats(gate_scale);
  params.gate_offset = floats(gate_offset);
  if (a.has_q()) params.q_tables = {floats(ex), floats(ey)};
  if (!a.has_q()) params.k_tables = {floats(ex), floats(ey)};
  if (a.has_both()) params.k_tables = {floats(ex) + ex.numel() / 2, floats(ey) + ey.numel() / 2};
}

kernels::Form kernel_form(Form form) {
  return form == Form::distance ? kernels::Form::distance : kernels::Form::direct;
}

kernels::Encoding encoding_of(const VectorArguments& a) {
  kernels::Encoding encoding;
  encoding.source = a.has_both() ? kernels::Source::qk
                    : a.has_q()  ? kernels::Source::q
                                 : kernels::Source::k;
  encoding.span = a.span == "suffix" ? kernels::Span::suffix : kernels::Span::between;
  encoding.positions = size_of(a.ex, -2);
  encoding.tables_per_head = a.ex.dim() - (a.has_both() ? 1 : 0) == 3;
  return encoding;
}

Grid in_one_row(const at::Tensor& q) {
  return {1, q.size(2), 0};
}

Grid grid_of(const BiasedArguments& a) {
  return a.form == Form::none ? in_one_row(a.q) : a.grid;
}

at::Tensor Gradients::like(std::size_t index, const at::Tensor& tensor) {
  if (!wants(index)) return {};
  return keep(index, empty_(tensor, tensor.sizes(), tensor.scalar_type()), tensor);
}

at::Tensor Gradients::floats_like(std::size_t index, const at::Tensor& parameter,
                                  at::IntArrayRef shape) {
  if (!wants(index)) return {};
  return keep(index, empty_(parameter, shape, at::kFloat), parameter);
}

at::Tensor Gradients::keep(std::size_t index, const at::Tensor& gradient,
                           const at::Tensor& parameter) {
  all_.push_back({index, gradient, parameter});
  return gradient;
}

std::vector<at::Tensor> Gradients::list() const {
  std::vector<at::Tensor> wanted;
  for (const auto& [index, gradient, parameter] : all_)
    if (wants(index)) wanted.push_back(like_parameter(gradient, parameter));
  return wanted;
}

kernels::EncodingGradients encoding_gradients(Gradients& gradients, std::size_t first,
                                              const VectorArguments& a) {
  const auto dex = gradients.floats_like(first, a.ex, a.ex.sizes());
  const auto dey = gradients.floats_like(first + 1, a.ey, a.ey.sizes());
  const auto part = [&](int64_t offset) {
    const auto at = [&](const at::Tensor& t) { return t.defined() ? floats(t) + offset : nullptr; };
    return kernels::TableGradients{at(dex), at(dey)};
  };
  kernels::EncodingGradients params;
  if (a.has_q()) params.q_tables = part(0);
  if (!a.has_q() || a.has_both()) params.k_tables = part(a.has_both() ? a.ex.numel() / 2 : 0);
  params.dgate_scale = floats(gradients.floats_like(first + 2, a.gate_scale, {a.q.size(1)}));
  params.dgate_offset = floats(gradients.floats_like(first + 3, a.gate_offset, {a.q.size(1)}));
  return params;
}

}  // namespace sape2::ops
