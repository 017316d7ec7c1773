#pragma once

#include "ops/operators/autograd.h"
#include "ops/packed_heads.h"

#include <algorithm>
#include <array>

/// Attention of a projection's output, whose thirds are q, k and v: one node of autograd's graph
/// from there to the heads' results side by side. Splitting and merging by operations of their own
/// would be six more nodes, which a small call feels, and a copy of the gradient.
namespace sape2::ops {

/// The arguments of an attention, with the tensor [B, N, 3·h·d] of which its q, k and v are the
/// thirds. The result is [B, N, h·d].
template <class Arguments>
struct Packed {
  static constexpr const char* kBackwardName = Arguments::kBackwardName;

  at::Tensor qkv;
  int64_t heads = 1;
  Arguments split;  // its q, k and v are views of qkv, or undefined

  /// qkv, and those of `split` that come after q, k and v.
  auto tensors() { return listed(*this); }
  auto tensors() const { return listed(*this); }

 private:
  template <class Self>
  static auto listed(Self& self) {
    const auto of_split = self.split.tensors();
    std::array<typename decltype(of_split)::value_type, std::tuple_size_v<decltype(of_split)> - 2>
        list;
    list[0] = &self.qkv;
    std::copy(of_split.begin() + 3, of_split.end(), list.begin() + 1);
    return list;
  }
};

/// The thirds as tensors that autograd knows nothing of: the node stands for all of them.
inline std::array<Tensor, 3> untracked_thirds(const Tensor& qkv, int64_t heads) {
  const at::AutoGradMode off(false);
  const at::AutoDispatchBelowADInplaceOrView below;
  return thirds(qkv, heads);
}

template <class Arguments>
Tensors run_forward(const Packed<Arguments>& arguments) {
  Tensors outputs = run_forward(arguments.split);
  outputs[0] = side_by_side(outputs[0]);
  return outputs;
}

template <class Arguments>
Tensors run_backward(const BackwardInputs& in, const Packed<Arguments>& arguments) {
  const at::AutoDispatchBelowADInplaceOrView below;
  Arguments split = arguments.split;
  const auto tensors = split.tensors();
  const auto parts = thirds(arguments.qkv, arguments.heads);
  for (size_t part = 0; part < parts.size(); ++part) *tensors[part] = parts[part];

  const auto by_heads = [&](TensorList list) {
    Tensors changed = list.vec();
    changed[0] = split_by_heads(changed[0], arguments.heads);
    return changed;
  };
  const Tensors grads = by_heads(in.grads), outputs = by_heads(in.outputs);
  const int64_t shares = in.wanted & BackwardInputs::kMayShare;
  const int64_t others = (in.wanted & ~(BackwardInputs::kMayShare | 1)) << 2;
  Tensors gradients =
      run_backward({grads, outputs, others | shares | (in.wants(0) ? 0b111 : 0)}, split);
  if (!in.wants(0)) return gradients;
  gradients[2] = joined(gradients[0], gradients[1], gradients[2]);
  gradients.erase(gradients.begin(), gradients.begin() + 2);
  return gradients;
}

template <class Arguments>
void drop_tensors(Packed<Arguments>& arguments) {
  arguments.qkv = Tensor();
  drop_tensors(arguments.split);
}

template <class Arguments>
bool divides_gates(const Packed<Arguments>& arguments) {
  return divides_gates(arguments.split);
}
template <class Arguments>
Tensor divided_gates(const Packed<Arguments>& arguments) {
  return divided_gates(arguments.split);
}
template <class Arguments>
Tensor put_divided_gates(Packed<Arguments>& arguments, const Tensor& divided) {
  return put_divided_gates(arguments.split, divided);
}

}  // namespace sape2::ops
