#include "sape2/ops/training.h"

#include "sape2/kernels/cuda_training.h"

#include "ops/operators/autograd.h"
#include "ops/packed_heads.h"
#include "ops/reference_guard.h"
#include "ops/training/gather.h"
#include "ops/training/kernels.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

namespace sape2::ops {
namespace {

using at::Tensor;
using Tensors = torch::autograd::variable_list;
using Context = torch::autograd::AutogradContext;

bool fused_norm(const Tensor& x, const Tensor& weight) {
  return fused_training(x) && x.size(-1) <= kernels::cuda::kWidestNorm &&
         weight.scalar_type() == x.scalar_type();
}

/// Tensors some of which may be undefined, for autograd, which takes only defined ones.
struct Given {
  explicit Given(const Tensors& all) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (!all[i].defined()) continue;
      defined.push_back(all[i]);
      places |= int64_t{1} << i;
    }
  }
  Tensors defined;
  int64_t places = 0;
};

/// The tensors in their places again.
Tensors spread(at::TensorList defined, int64_t places, std::size_t count) {
  Tensors all(count);
  for (std::size_t i = 0, next = 0; i < count; ++i)
    if ((places >> i) & 1) all[i] = defined[next++];
  return all;
}

/// The gradients of those that were given, and none for `others` further arguments.
Tensors of_given(const Tensors& all, int64_t places, std::size_t others) {
  Tensors result;
  for (std::size_t i = 0; i < all.size(); ++i)
    if ((places >> i) & 1) result.push_back(all[i]);
  result.resize(result.size() + others);
  return result;
}

struct Gelu : torch::autograd::Function<Gelu> {
  static Tensor forward(Context* context, at::TensorList given, int64_t places) {
    const Tensors all = spread(given, places, 2);  // x, bias
    context->save_for_backward(all);
    context->saved_data["places"] = places;
    return fused::gelu(all[0], all[1]);
  }
  static Tensors backward(Context* context, const Tensors& grads) {
    const auto saved = context->get_saved_variables();
    return once_only(saved, grads, [&] {
      const auto [dx, dbias] = fused::gelu_backward(saved[0], saved[1], grads[0]);
      return of_given({dx, dbias}, context->saved_data["places"].toInt(), 1);
    });
  }
};

struct AddAndNorm : torch::autograd::Function<AddAndNorm> {
  /// Takes x, the branch's value, bias and factor, weight and bias; gives {sum, normed}, or
  /// {normed} where there is no branch.
  static Tensors forward(Context* context, at::TensorList given, int64_t places, double epsilon) {
    context->set_materialize_grads(false);
    const Tensors all = spread(given, places, 6);
    const auto made =
        fused::add_and_norm({all[0], {all[1], all[2], all[3]}, all[4], all[5], epsilon});
    context->save_for_backward({made.sum, all[2], all[3], all[4], all[5], made.statistics});
    context->saved_data["places"] = places;
    context->saved_data["epsilon"] = epsilon;
    if (all[1].defined()) return {made.sum, made.normed};
    return {made.normed};
  }
  static Tensors backward(Context* context, const Tensors& grads) {
    const auto saved = context->get_saved_variables();
    return once_only(saved, grads, [&] {
      const Tensor& sum = saved[0];
      const Tensor dsum = grads.size() == 2 ? grads[0] : Tensor();
      const Tensor dnormed = grads.back().defined() ? grads.back() : at::zeros_like(sum);
      const auto d = fused::add_and_norm_backward({sum,
                                                   {Tensor(), saved[1], saved[2]},
                                                   saved[3],
                                                   saved[4],
                                                   context->saved_data["epsilon"].toDouble()},
                                                  sum, saved[5], dsum, dnormed);
      return of_given({d.x, d.branch, d.branch_bias, Tensor(), d.weight, d.bias},
                      context->saved_data["places"].toInt(), 2);
    });
  }
};

struct SplitHeads : torch::autograd::Function<SplitHeads> {
  static Tensors forward(Context* context, const Tensor& qkv, int64_t heads) {
    context->saved_data["heads"] = heads;
    const auto parts = thirds(qkv, heads);
    return {parts[0], parts[1], parts[2]};
  }
  static Tensors backward(Context*, const Tensors& grads) {
    return {joined(grads[0], grads[1], grads[2]), Tensor()};
  }
};

struct CrossEntropy : torch::autograd::Function<CrossEntropy> {
  static Tensor forward(Context* context, const Tensor& logits, const Tensor& targets,
                        double scale) {
    const auto [loss, dlogits] = fused::cross_entropy(logits, targets, scale);
    context->save_for_backward({dlogits, logits});
    return loss;
  }
  static Tensors backward(Context* context, const Tensors& grads) {
    const auto saved = context->get_saved_variables();
    return once_only(saved, grads, [&] {
      const Tensor& dlogits = saved[0];
      return Tensors{dlogits * grads[0].to(dlogits.scalar_type()), Tensor(), Tensor()};
    });
  }
};

}  // namespace

bool fused_training(const Tensor& x) {
  if (!fused::available() || !x.is_cuda() || reference_only()) return false;
  const auto type = x.scalar_type();
  return x.dim() >= 2 && x.size(-1) % 4 == 0 && x.numel() > 0 &&
         (type == at::kFloat || type == at::kBFloat16 || type == at::kHalf);
}

Tensor gelu(const Branch& x) {
  if (fused_training(x.value)) {
    const Given given({x.value, x.bias});
    return Gelu::apply(at::TensorList(given.defined), given.places);
  }
  return at::gelu(x.bias.defined() ? x.value + x.bias : x.value);
}

Tensor add(const Tensor& x, const Branch& branch) {
  if (!branch.value.defined()) return x;
  const Tensor value = branch.bias.defined() ? branch.value + branch.bias : branch.value;
  if (!branch.factor.defined()) return x + value;
  return x + value * branch.factor.to(x.scalar_type()).view({-1, 1, 1});
}

std::pair<Tensor, Tensor> add_and_norm(const Tensor& x, const Branch& branch, const Tensor& weight,
                                       const Tensor& bias, double epsilon) {
  if (!fused_norm(x, weight)) {
    const Tensor sum = add(x, branch);
    return {sum, at::layer_norm(sum, weight.sizes(), weight, bias, epsilon)};
  }
  const Given given({x, branch.value, branch.bias, branch.factor, weight, bias});
  const auto made = AddAndNorm::apply(at::TensorList(given.defined), given.places, epsilon);
  if (made.size() == 1) return {x, made[0]};
  return {made[0], made[1]};
}

std::array<Tensor, 3> split_heads(const Tensor& qkv, int64_t heads) {
  refuse_other_derivatives({qkv});
  const auto parts = SplitHeads::apply(qkv.contiguous(), heads);
  return {parts[0], parts[1], parts[2]};
}

Tensor soft_cross_entropy(const Tensor& logits, const Tensor& targets, double scale) {
  const bool fused = fused::available() && logits.is_cuda() && !reference_only() &&
                     logits.scalar_type() != at::kDouble;
  if (fused) return CrossEntropy::apply(logits, targets, scale);
  return (targets * at::log_softmax(logits, 1, at::kFloat)).sum() * -scale;
}

void gather_gradients(const std::vector<GradientPiece>& pieces, const Tensor& flat, bool add) {
  if (fused::available() && flat.is_cuda()) return gather_on_gpu(pieces, flat, add);
  for (const GradientPiece& piece : pieces) {
    const Tensor place = flat.narrow(0, piece.offset, piece.gradient.numel());
    const Tensor gradient = piece.gradient.reshape({-1});
    if (add) {
      place.add_(gradient);
    } else {
      place.copy_(gradient);
    }
  }
}

}  // namespace sape2::ops
