#include "ops/packed_heads.h"

#include "ops/sizes.h"

#include <ATen/EmptyTensor.h>

namespace sape2::ops {

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
  const int64_t head_size = packed.size(2) / (3 * heads);
  const at::Tensor split = packed.view({packed.size(0), packed.size(1), 3, heads, head_size})
                               .permute({2, 0, 3, 1, 4});  // (3, B, h, N, d)
  return {split.select(0, 0), split.select(0, 1), split.select(0, 2)};
}

at::Tensor packed_whole(const at::Tensor& q) {
  const int64_t tokens = q.size(2), width = 3 * q.size(1) * q.size(3);
  return q.as_strided({q.size(0), tokens, width}, {tokens * width, width, 1}, q.storage_offset());
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
