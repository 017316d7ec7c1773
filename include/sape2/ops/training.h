#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

/// What a transformer's training needs beside attention, as differentiable functions. On an NVIDIA
/// GPU each is one fused kernel (and, backward, a second that adds partial sums); elsewhere the
/// same formula from LibTorch's operations.
namespace sape2::ops {

/// Whether the fused kernels serve this tensor, a matrix or a stack of them. A ReferenceGuard turns
/// them off.
bool fused_training(const at::Tensor& x);

/// What a branch adds to the tokens it branched off: factor · (value + bias).
struct Branch {
  at::Tensor value;   ///< [B, N, D]; undefined: nothing is added
  at::Tensor bias;    ///< [D]; undefined: none, or added already
  at::Tensor factor;  ///< [B] float32; undefined: 1
};

/// x·weightᵀ + bias. As a branch, the bias is left to whoever adds it where that saves a pass.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);
Branch linear_branch(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

/// What a transformer's MLP is made of; weights `[out, in]`.
struct MlpWeights {
  at::Tensor first, first_bias, second, second_bias;
};
/// gelu(x·firstᵀ + first_bias)·secondᵀ + second_bias, the last left to whoever adds it.
Branch mlp(const at::Tensor& x, const MlpWeights& weights);

class GradientQueue;

/// While it lives, linear layers that run on this thread compute the gradients of their weights and
/// biases on a stream beside the backward pass, where the fused kernels serve them: alone they fill
/// a GPU badly, so those of several layers are also computed together. join(), after a backward
/// pass or within it, makes the current stream wait for them, which must be the one that the pass
/// ran on; before it they must not be used, not even by a hook of a parameter, and each of these
/// layers runs once in a pass. A backward pass after its life computes them on the spot.
class GradientsBeside {
 public:
  explicit GradientsBeside(const c10::Stream& stream);
  ~GradientsBeside();
  GradientsBeside(const GradientsBeside&) = delete;
  GradientsBeside& operator=(const GradientsBeside&) = delete;

  void join() const;

 private:
  std::shared_ptr<GradientQueue> queue_, outer_;
};

/// gelu(value + bias), the exact one.
at::Tensor gelu(const Branch& x);

/// x with the branch added.
at::Tensor add(const at::Tensor& x, const Branch& branch);

/// x with the branch added, and that normalised over its last axis.
std::pair<at::Tensor, at::Tensor> add_and_norm(const at::Tensor& x, const Branch& branch,
                                               const at::Tensor& weight, const at::Tensor& bias,
                                               double epsilon);

/// The thirds of [B, N, 3·h·d] as q, k and v [B, h, N, d]: views, and gradients need no copy where
/// the attention leaves them side by side.
std::array<at::Tensor, 3> split_heads(const at::Tensor& qkv, int64_t heads);

/// −scale · Σ targets · log softmax(logits) in float32; targets `[B, classes]` float32, which get
/// no gradient.
at::Tensor soft_cross_entropy(const at::Tensor& logits, const at::Tensor& targets, double scale);

/// The gradient of one parameter, and where it begins in the flat gradient.
struct GradientPiece {
  at::Tensor gradient;
  int64_t offset = 0;
};

/// Copies, or adds, gradients into their places in a flat float32 tensor on the same device.
void gather_gradients(const std::vector<GradientPiece>& pieces, const at::Tensor& flat, bool add);

/// Adam on a GPU; see kernels::cuda::AdamPass.
struct AdamPass {
  at::Tensor weights, mean, square, gradients;
  at::Tensor average;         ///< undefined: none
  at::Tensor copy;            ///< bfloat16, of the leading weights; undefined: none
  at::Tensor gradient_scale;  ///< 1 number
  at::Tensor numbers;         ///< step size, square scale, kept weight, average's share
  int64_t decayed = 0;
  double beta1 = 0, beta2 = 0, epsilon = 0, gradient_decay = 0;
};
void adam_pass(const AdamPass& pass);

/// [norm, factor] of a flat tensor on a GPU: the factor makes it no longer than `largest`; 0: any.
at::Tensor clipping_norm(const at::Tensor& flat, double largest);

}  // namespace sape2::ops
