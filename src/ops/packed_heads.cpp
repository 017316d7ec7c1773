#include "ops/packed_heads.h"

#include "ops/sizes.h"

#include <ATen/EmptyTensor.h>

namespace sape2::ops {
namespace {

/// Whether a view past the dispatcher is as good as one of its own: nobody records it.
bool takes_plain_views(const at::Tensor& tensor) {
  return (tensor.is_cpu() || tensor.is_cuda()) && is_plain(tensor) && !tensor.is_neg() &&
         !(at::GradMode::is_enabled() && tensor.requires_grad());
}

/// Other sizes and strides over a plain tensor's memory, from an offset within it. Past the
/// dispatcher, whose views cost a small call more than its arithmetic.
at::Tensor plain_view(const at::Tensor& tensor, at::IntArrayRef sizes, at::IntArrayRef strides,
                      int64_t offset) {
  at::Tensor view = at::detail::make_tensor<c10::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(tensor.storage()), tensor.key_set(), tensor.dtype());
  c10::TensorImpl* const impl = view.unsafeGetTensorImpl();
  impl->set_storage_offset(tensor.storage_offset() + offset);
  impl->set_sizes_and_strides(sizes, strides);
  // Autograd notices by it that the memory was changed since.
  if (!tensor.is_inference())
    impl->set_version_counter(tensor.unsafeGetTensorImpl()->version_counter());
  return view;
}

}  // namespace

at::Tensor empty_for(const at::Tensor& q, c10::SymIntArrayRef sizes, at::ScalarType type) {
  if (q.is_cpu())
    if (const auto numbers = c10::asIntArrayRefSlowOpt(sizes))
      return at::detail::empty_cpu(*numbers, type);
  return at::empty_symint(sizes, q.options().dtype(type));
}

bool are_packed(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  if (!q.defined() || !k.defined() || !v.defined() || q.dim() != 4) return false;
  if (q.sizes() != k.sizes() || q.sizes() != v.sizes()) return false;
  const int64_t tokens = q.size(2), head_size = q.size(3), width = q.size(1) * head_size;
  const std::vector<int64_t> strides{tokens * 3 * width, head_size, 3 * width, 1};
  const auto third = [&](const at::Tensor& tensor, int64_t number) {
    return tensor.strides() == at::IntArrayRef(strides) &&
           tensor.storage_offset() == q.storage_offset() + number * width &&
           tensor.scalar_type() == q.scalar_type() && tensor.is_alias_of(q);
  };
  return third(q, 0) && third(k, 1) && third(v, 2);
}

std::array<at::Tensor, 3> thirds(const at::Tensor& packed, int64_t heads) {
  const int64_t head_size = size_of(packed, 2) / (3 * heads);
  if (takes_plain_views(packed) && packed.is_contiguous()) {
    const int64_t tokens = packed.size(1), width = packed.size(2);
    const auto third = [&](int64_t number) {
      return plain_view(packed, {packed.size(0), heads, tokens, head_size},
                        {tokens * width, head_size, width, 1}, number * (width / 3));
    };
    return {third(0), third(1), third(2)};
  }
  const at::Tensor split =
      packed.reshape_symint({packed.sym_size(0), packed.sym_size(1), 3, heads, head_size})
          .permute({2, 0, 3, 1, 4});  // (3, B, h, N, d)
  return {split.select(0, 0), split.select(0, 1), split.select(0, 2)};
}

Sape2Arguments with_thirds(const PackedArguments& a) {
  const at::AutoGradMode off(false);
  const at::AutoDispatchBelowADInplaceOrView below;
  Sape2Arguments split = a.split;
  const auto [q, k, v] = thirds(a.qkv, a.heads);
  split.vectors.q = q;
  split.vectors.k = k;
  split.v = v;
  return split;
}

at::Tensor joined(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const int64_t tokens = size_of(q, 2), width = 3 * size_of(q, 1) * size_of(q, 3);
  if (takes_plain_views(q) && takes_plain_views(k) && takes_plain_views(v) && are_packed(q, k, v))
    return plain_view(q, {q.size(0), tokens, width}, {tokens * width, width, 1}, 0);
  return at::stack({q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)}, 2)  // (B, N, 3, h, d)
      .reshape_symint({q.sym_size(0), tokens, width});
}

at::Tensor split_by_heads(const at::Tensor& tokens, int64_t heads) {
  const int64_t head_size = size_of(tokens, 2) / heads;
  if (takes_plain_views(tokens) && tokens.is_contiguous()) {
    const int64_t count = tokens.size(1), width = tokens.size(2);
    return plain_view(tokens, {tokens.size(0), heads, count, head_size},
                      {count * width, head_size, width, 1}, 0);
  }
  return tokens.reshape_symint({tokens.sym_size(0), tokens.sym_size(1), heads, head_size})
      .transpose(1, 2);
}

at::Tensor side_by_side(const at::Tensor& heads) {
  const int64_t width = size_of(heads, 1) * size_of(heads, 3);
  if (takes_plain_views(heads)) {
    const int64_t count = heads.size(2), head_size = heads.size(3);
    const std::array<int64_t, 4> by_token{count * width, head_size, width, 1};
    if (heads.strides() == at::IntArrayRef(by_token))
      return plain_view(heads, {heads.size(0), count, width}, {count * width, width, 1}, 0);
  }
  return heads.transpose(1, 2).reshape_symint({heads.sym_size(0), heads.sym_size(2), width});
}

at::Tensor empty_output(const at::Tensor& q) {
  const int64_t head_stride = stride_of(q, 1);
  const bool by_token =
      stride_of(q, 3) == 1 && head_stride >= size_of(q, 3) && head_stride < stride_of(q, 2);
  const auto sizes = q.sym_sizes();
  if (!by_token) return empty_for(q, sizes, q.scalar_type());
  const std::array by_tokens{sizes[0], sizes[2], sizes[1], sizes[3]};
  return empty_for(q, by_tokens, q.scalar_type()).transpose(1, 2);
}

std::array<at::Tensor, 3> empty_like_heads(const at::Tensor& q, const at::Tensor& k,
                                           const at::Tensor& v, bool may_share) {
  if (may_share && are_packed(q, k, v)) {
    return thirds(at::empty({q.size(0), q.size(2), 3 * q.size(1) * q.size(3)}, q.options()),
                  q.size(1));
  }
  const auto like = [](const at::Tensor& t) {
    return empty_for(t, t.sym_sizes(), t.scalar_type());
  };
  return {like(q), like(k), like(v)};
}

}  // namespace sape2::ops
