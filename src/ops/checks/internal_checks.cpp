#include "ops/checks/internal_checks.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

namespace sape2::ops {
namespace {

bool same_grid(const Grid& a, const Grid& b) {
  return a.rows == b.rows && a.cols == b.cols && a.prefix == b.prefix;
}

bool same_tensors(std::initializer_list<std::pair<const at::Tensor*, const at::Tensor*>> pairs) {
  for (const auto& [a, b] : pairs)
    if (!a->is_same(*b)) return false;
  return true;
}

void check_count(const char* op, const char* name, at::TensorList list, size_t count) {
  TORCH_CHECK_VALUE(list.size() == count, op, ": there are ", list.size(), " ", name, "; ", count,
                    " were expected");
}

template <class Arguments>
void check_wanted(const char* op, int64_t wanted, const Arguments& a) {
  int64_t given = BackwardInputs::kMayShare;
  const auto tensors = a.tensors();
  for (size_t index = 0; index < tensors.size(); ++index)
    if (tensors[index]->defined()) given |= int64_t{1} << index;
  TORCH_CHECK_VALUE((wanted & ~given) == 0, op, ": wanted is ", wanted,
                    ", which asks for gradients of tensors that are not given; a sum of 2^i for "
                    "the i-th tensor of the arguments was expected");
}

void check_passes(const char* op, const BackwardInputs& in, const at::Tensor& q, size_t outputs) {
  check_count(op, "grads", in.grads, 1);
  check_count(op, "outputs", in.outputs, outputs);
  const auto type = q.scalar_type();
  const auto images = q.sym_size(0), heads = q.sym_size(1), tokens = q.sym_size(2),
             head_size = q.sym_size(3);
  check_tensor(op, "grads[0]", in.grads[0], q, type, {images, heads, tokens, head_size});
  check_tensor(op, "outputs[0]", in.outputs[0], q, type, {images, heads, tokens, head_size});
  check_tensor(op, "outputs[1]", in.outputs[1], q, compute_type(q), {images, heads, tokens, 2});
}

/// Gradients and outputs of two axis vectors.
void check_vector_passes(const char* op, const char* name, at::TensorList list,
                         const VectorArguments& a) {
  check_count(op, name, list, 2);
  for (size_t axis = 0; axis < 2; ++axis) {
    const auto images = a.q.sym_size(0), heads = a.q.sym_size(1);
    const int64_t length = axis == 0 ? a.grid.cols : a.grid.rows;
    const std::string each = std::string(name) + (axis == 0 ? "[0]" : "[1]");
    const auto type = a.q.scalar_type();
    if (a.has_both()) {
      check_tensor(op, each.c_str(), list[axis], a.q, type,
                   {2, images, heads, a.grid.patches(), length});
    } else {
      check_tensor(op, each.c_str(), list[axis], a.q, type,
                   {images, heads, a.grid.patches(), length});
    }
  }
}

}  // namespace

bool same(const VectorArguments& a, const VectorArguments& b) {
  return same_tensors({{&a.q, &b.q},
                       {&a.k, &b.k},
                       {&a.ex, &b.ex},
                       {&a.ey, &b.ey},
                       {&a.gate_scale, &b.gate_scale},
                       {&a.gate_offset, &b.gate_offset}}) &&
         same_grid(a.grid, b.grid) && a.mode == b.mode && a.span == b.span;
}

bool same(const BiasedArguments& a, const BiasedArguments& b) {
  return same_tensors({{&a.q, &b.q},
                       {&a.k, &b.k},
                       {&a.v, &b.v},
                       {&a.ux, &b.ux},
                       {&a.uy, &b.uy},
                       {&a.gain, &b.gain}}) &&
         same_grid(a.grid, b.grid) && a.form == b.form && a.scale == b.scale;
}

bool same(const Sape2Arguments& a, const Sape2Arguments& b) {
  return same(a.vectors, b.vectors) && same_tensors({{&a.v, &b.v}, {&a.gain, &b.gain}}) &&
         a.form == b.form && a.scale == b.scale && a.kept == b.kept;
}

bool same(const PackedArguments& a, const PackedArguments& b) {
  return same_tensors({{&a.qkv, &b.qkv}}) && a.heads == b.heads && same(a.split, b.split) &&
         a.split.gate_divisor == b.split.gate_divisor;
}

bool same(const CopeArguments& a, const CopeArguments& b) {
  return same_tensors({{&a.q, &b.q}, {&a.k, &b.k}, {&a.v, &b.v}, {&a.e, &b.e}}) &&
         a.scale == b.scale;
}

bool same(const BiasArguments& a, const BiasArguments& b) {
  return same_tensors({{&a.ux, &b.ux}, {&a.uy, &b.uy}}) && same_grid(a.grid, b.grid) &&
         a.form == b.form;
}

void check_backward(const char* op, const BackwardInputs& in, const BiasedArguments& a) {
  check(op, a);
  check_wanted(op, in.wanted, a);
  check_passes(op, in, a.q, 2);
}

void check_backward(const char* op, const BackwardInputs& in, const Sape2Arguments& a) {
  const at::Tensor& q = a.vectors.q;
  check(op, a);
  check_wanted(op, in.wanted, a);
  check_passes(op, in, q, 3);
  check_tensor(op, "outputs[2]", in.outputs[2], q, at::kByte,
               {q.sym_size(0), q.sym_size(1), a.kept});
}

void check_backward(const char* op, const BackwardInputs& in, const PackedArguments& a) {
  check(op, a);
  check_wanted(op, in.wanted, a);
  check_count(op, "grads", in.grads, 1);
  check_count(op, "outputs", in.outputs, 3);
  const at::Tensor& qkv = a.qkv;
  const auto images = qkv.sym_size(0), tokens = qkv.sym_size(1), width = qkv.sym_size(2) / 3;
  const auto type = qkv.scalar_type();
  check_tensor(op, "grads[0]", in.grads[0], qkv, type, {images, tokens, width});
  check_tensor(op, "outputs[0]", in.outputs[0], qkv, type, {images, tokens, width});
  check_tensor(op, "outputs[1]", in.outputs[1], qkv, compute_type(qkv),
               {images, a.heads, tokens, 2});
  check_tensor(op, "outputs[2]", in.outputs[2], qkv, at::kByte, {images, a.heads, a.split.kept});
}

void check_backward(const char* op, const BackwardInputs& in, const CopeArguments& a) {
  check(op, a);
  check_wanted(op, in.wanted, a);
  check_passes(op, in, a.q, 2);
}

void check_backward(const char* op, const BackwardInputs& in, const VectorArguments& a) {
  check(op, a);
  check_wanted(op, in.wanted, a);
  check_vector_passes(op, "grads", in.grads, a);
  check_vector_passes(op, "outputs", in.outputs, a);
}

void check_backward(const char* op, const BackwardInputs& in, const BiasArguments& a) {
  check(op, a);
  check_wanted(op, in.wanted, a);
  check_count(op, "grads", in.grads, 1);
  check_count(op, "outputs", in.outputs, 1);
  const auto images = a.ux.sym_size(-4), heads = a.ux.sym_size(-3);
  const int64_t tokens = a.grid.tokens();
  for (const auto& [name, list] : {std::pair{"grads[0]", in.grads}, {"outputs[0]", in.outputs}})
    check_tensor(op, name, list[0], a.ux, a.ux.scalar_type(), {images, heads, tokens, tokens});
}

}  // namespace sape2::ops
