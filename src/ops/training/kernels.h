#pragma once

#include "sape2/ops/ops.h"
#include "sape2/ops/training.h"

#include <vector>

/// The fused kernels on tensors, without autograd. Where there are none, nothing calls these.
namespace sape2::ops::fused {

/// Whether this build has them.
bool available();

struct NormArguments {
  at::Tensor x;  // (B, N, D)
  Branch branch;
  at::Tensor weight, bias;
  double epsilon = 0;
};

struct Normed {
  at::Tensor sum;  // x itself where there is no branch
  at::Tensor normed;
  at::Tensor statistics;
};
Normed add_and_norm(const NormArguments& a);

struct NormGradients {
  at::Tensor x, branch, branch_bias, weight, bias;
};
/// `dsum` may be undefined.
NormGradients add_and_norm_backward(const NormArguments& a, const at::Tensor& sum,
                                    const at::Tensor& statistics, const at::Tensor& dsum,
                                    const at::Tensor& dnormed);

at::Tensor gelu(const at::Tensor& x, const at::Tensor& bias);
/// Of x and of the bias.
std::pair<at::Tensor, at::Tensor> gelu_backward(const at::Tensor& x, const at::Tensor& bias,
                                                const at::Tensor& dout);

/// (D), the sums over all axes but the last.
at::Tensor column_sums(const at::Tensor& x);

/// Whether the two below serve as many rows as x has, of x's type: `depth` numbers of each are
/// multiplied for each of `width` results.
bool linear_serves(const at::Tensor& x, int64_t depth, int64_t width);

struct Activated {
  at::Tensor out;
  at::Tensor derivative;  // undefined: not wanted
};
/// gelu(x · weightᵀ + bias).
Activated linear_gelu(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                      bool differentiates);
/// Back through a linear layer and the GELU before it: of what went into that, and of its bias.
std::pair<at::Tensor, at::Tensor> linear_gelu_backward(const at::Tensor& dy,
                                                       const at::Tensor& weight,
                                                       const at::Tensor& derivative);

/// The gradient of a linear layer's weight, dyᵀ · x, and where it goes.
struct WeightGradient {
  at::Tensor dy, x;  // matrices
  c10::Storage out;
};
/// Whether those of such matrices can be computed together.
bool weight_gradient_serves(const at::Tensor& dy, const at::Tensor& x);
/// Whether more of them at once would fill the GPU no better.
bool weight_gradients_suffice(const std::vector<WeightGradient>& gradients);
void weight_gradients(const std::vector<WeightGradient>& gradients);

/// The loss, and its derivative by the logits.
std::pair<at::Tensor, at::Tensor> cross_entropy(const at::Tensor& logits, const at::Tensor& targets,
                                                double scale);

/// Whether rotary kernels take heads like q, which is [B, h, N, d].
bool turns(const at::Tensor& q);
/// q and k turned, and v, as thirds of one new tensor.
std::array<at::Tensor, 3> turned(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                 const Grid& grid, const Rotation& rotation);
/// Turns the gradients of turned q and k back in place. Gives those of fx and fy where `wanted`.
std::pair<at::Tensor, at::Tensor> turn_back(const at::Tensor& dq, const at::Tensor& dk,
                                            const at::Tensor& q, const at::Tensor& k,
                                            const Grid& grid, const Rotation& rotation,
                                            bool wanted);

}  // namespace sape2::ops::fused
