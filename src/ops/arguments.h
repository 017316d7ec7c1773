#pragma once

#include "sape2/ops/ops.h"

#include <ATen/core/Tensor.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <string>

/// The operators' arguments, gathered so that checks, reference, kernels and autograd speak of one
/// thing. Tensors that were not given are undefined; `scale` is always filled in. `tensors()` lists
/// the tensors in the order of their gradients.
namespace sape2::ops {

/// `paths` has no kernel: every back end runs the plain formula for it.
enum class Form { none, distance, direct, paths };

inline bool has_kernel(Form form) {
  return form != Form::paths;
}

/// A factor on q·k as options give it, where 0 stands for 1/√d.
inline double scale_or_default(double scale, const at::Tensor& q) {
  return scale == 0 ? 1 / std::sqrt(static_cast<double>(q.size(3))) : scale;
}

/// Stage 1: q, k and the tables. Names as in the schema.
struct VectorArguments {
  static constexpr const char* kBackwardName = "VectorsBackward";
  at::Tensor q, k;    // (B, h, N, d)
  at::Tensor ex, ey;  // (M, d) or (h, M, d); mode "qk": (2, …)
  Grid grid;
  std::string mode;
  std::string span;
  at::Tensor gate_scale, gate_offset;  // () or (h)

  bool has_q() const { return mode != "k"; }
  bool has_both() const { return mode == "qk"; }
  auto tensors() { return std::array{&q, &k, &ex, &ey, &gate_scale, &gate_offset}; }
  auto tensors() const { return std::array{&q, &k, &ex, &ey, &gate_scale, &gate_offset}; }
};

/// Stage 2: attention with a bias made from axis vectors; with Form::none, plain attention.
struct BiasedArguments {
  static constexpr const char* kBackwardName = "AttentionBackward";
  at::Tensor q, k, v;  // (B, h, N, d)
  at::Tensor ux, uy;   // (B, h, H·W, W), (B, h, H·W, H), perhaps with a leading axis of 2
  Grid grid;
  Form form = Form::none;
  double scale = 0;
  at::Tensor gain;  // () or (h)
  bool bias_inside = true;

  auto tensors() { return std::array{&q, &k, &v, &ux, &uy, &gain}; }
  auto tensors() const { return std::array{&q, &k, &v, &ux, &uy, &gain}; }
};

/// Both stages.
struct Sape2Arguments {
  static constexpr const char* kBackwardName = "Sape2AttentionBackward";
  VectorArguments vectors;
  at::Tensor v;  // (B, h, N, d)
  Form form = Form::distance;
  double scale = 0;
  at::Tensor gain;
  bool bias_inside = true;
  int64_t kept = 0;         // bytes a head of axis vectors that forward keeps for backward
  double gate_divisor = 1;  // the gates' factor is gate_scale / gate_divisor, see gate_divisor.h

  auto tensors() {
    auto& s = vectors;
    return std::array{&s.q, &s.k, &v, &s.ex, &s.ey, &s.gate_scale, &s.gate_offset, &gain};
  }
  auto tensors() const {
    const auto& s = vectors;
    return std::array{&s.q, &s.k, &v, &s.ex, &s.ey, &s.gate_scale, &s.gate_offset, &gain};
  }
};

/// Both stages for a projection's output.
struct PackedArguments {
  static constexpr const char* kBackwardName = "PackedSape2AttentionBackward";
  at::Tensor qkv;  // (B, N, 3·h·d): its thirds are q, k and v
  int64_t heads = 1;
  Sape2Arguments split;       // without q, k and v
  bool has_quotient = false;  // the gates' factor in `split` is the quotient already

  auto tensors() {
    auto& a = split;
    auto& s = a.vectors;
    return std::array{&qkv, &s.ex, &s.ey, &s.gate_scale, &s.gate_offset, &a.gain};
  }
  auto tensors() const {
    const auto& a = split;
    const auto& s = a.vectors;
    return std::array{&qkv, &s.ex, &s.ey, &s.gate_scale, &s.gate_offset, &a.gain};
  }
};

struct CopeArguments {
  static constexpr const char* kBackwardName = "CopeAttentionBackward";
  at::Tensor q, k, v;  // (B, h, N, d)
  at::Tensor e;        // (M, d)
  double scale = 0;

  auto tensors() { return std::array{&q, &k, &v, &e}; }
  auto tensors() const { return std::array{&q, &k, &v, &e}; }
};

/// The bias that given vectors make.
struct BiasArguments {
  static constexpr const char* kBackwardName = "BiasBackward";
  at::Tensor ux, uy;
  Grid grid;
  Form form = Form::distance;

  auto tensors() { return std::array{&ux, &uy}; }
  auto tensors() const { return std::array{&ux, &uy}; }
};

/// The arguments of a backward kernel besides those of its forward kernel.
struct BackwardInputs {
  at::TensorList grads;    ///< of the differentiable outputs
  at::TensorList outputs;  ///< all: out, softmax and perhaps kept vectors; ux and uy; or the bias
  int64_t wanted;          ///< bit i: the gradient of the i-th of `tensors()` is asked for

  /// A bit of `wanted`: dq, dk and dv may be parts of one new tensor. Compiled graphs must be able
  /// to take each result for a tensor of its own.
  static constexpr int64_t kMayShare = int64_t{1} << 62;

  bool wants(size_t index) const { return (wanted >> index) & 1; }
  bool may_share() const { return (wanted & kMayShare) != 0; }
};

/// An attention's output (B, h, N, d), and of each token's softmax the largest logit and the sum of
/// e^(logit − largest), (B, h, N, 2), which the backward pass needs.
struct AttentionResult {
  at::Tensor out, softmax;
};

}  // namespace sape2::ops
