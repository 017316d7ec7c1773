#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>

/// Differentiable attention with semantic-aware positions, as functions on LibTorch tensors.
///
/// Each function calls the operator of the same name in the `sape2` namespace of LibTorch's
/// dispatcher (`torch.ops.sape2.*` in Python), so it works with autograd on every device the
/// library has kernels for. Shapes: `B` images, `h` heads, `N = prefix + rows·cols` tokens, head
/// size `d`; patch `(y, x)` is token `prefix + y·cols + x`. Wrong arguments throw `c10::Error` with
/// one sentence that names the argument, its value and what was expected. The attention operators
/// can be differentiated once; a second backward is refused.
namespace sape2::ops {

/// The grid of patches, and how many prefix tokens (class token, registers) stand before it.
struct Grid {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t prefix = 0;

  int64_t patches() const { return rows * cols; }
  int64_t tokens() const { return prefix + patches(); }
};

/// How gates become positions and positions become vectors (stage 1).
struct VectorOptions {
  std::string mode = "k";  ///< what meets the tables: "q", "k", or "qk" (both)
  std::string span =
      "suffix";             ///< "suffix": sum to the end of the row; "between": signed, from i to m
  at::Tensor gate_scale;    ///< 0-dim or [h]; undefined: 1/√d
  at::Tensor gate_offset;   ///< 0-dim or [h]; undefined: 0. Scale 0, offset +inf: open gates
  double gate_divisor = 1;  ///< gates take gate_scale / gate_divisor

  /// That quotient; undefined where gate_scale is.
  at::Tensor divided_gate_scale() const;
};

/// How a bias enters the attention (stage 2).
struct BiasOptions {
  double scale = 0;         ///< factor on q·k; 0: 1/√d
  at::Tensor gain;          ///< factor on the bias, 0-dim or [h]; undefined: 1
  bool bias_inside = true;  ///< true: scale·(q·k + gain·b); false: scale·q·k + gain·b
};

/// Softmax attention with no bias: `softmax(scale · q kᵀ) v`, all `[B, h, N, d]`.
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     double scale = 0);

/// SaPE² attention. Tables `ex`, `ey` are `[M, d]`, or `[h, M, d]` for tables of each head's own;
/// in mode "qk" they have one more leading axis of 2, Q's tables, then K's. `form` is "distance"
/// (the paper), "direct", or "paths": ½(ux_i[x_n] + uy_i[y_n] + ux_n[x_i] + uy_n[y_i]), whose
/// second stage is not fused.
at::Tensor sape2_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const at::Tensor& ex, const at::Tensor& ey, const Grid& grid,
                           const VectorOptions& vectors = {}, const std::string& form = "distance",
                           const BiasOptions& bias = {});

/// sape2_attention() of a projection's output, in forms other than "paths": the thirds of `qkv`
/// `[B, N, 3·h·d]` are q, k and v, and the result is `[B, N, h·d]`. Less work for the host than
/// splitting and merging around it, and no copy of the gradient.
at::Tensor packed_sape2_attention(const at::Tensor& qkv, int64_t heads, const at::Tensor& ex,
                                  const at::Tensor& ey, const Grid& grid,
                                  const VectorOptions& vectors = {},
                                  const std::string& form = "distance",
                                  const BiasOptions& bias = {});

/// Stage 1 alone: every patch's axis vectors `[B, h, rows·cols, cols]` and `[B, h, rows·cols,
/// rows]` (mode "qk": a leading axis of 2).
std::pair<at::Tensor, at::Tensor> sape2_vectors(const at::Tensor& q, const at::Tensor& k,
                                                const at::Tensor& ex, const at::Tensor& ey,
                                                const Grid& grid,
                                                const VectorOptions& vectors = {});

/// Stage 2 with Euclidean distances: `b_in = ‖ux_i − ux_n‖ + ‖uy_i − uy_n‖` for patches, 0 for
/// prefix tokens. Vectors may have a leading axis of 2, whose biases add.
at::Tensor distance_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const at::Tensor& ux, const at::Tensor& uy, const Grid& grid,
                              const BiasOptions& bias = {});

/// Stage 2 read directly: `b_in = zx_i[x_n] + zy_i[y_n]`, also known as decomposed relative
/// position.
at::Tensor axial_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const at::Tensor& zx, const at::Tensor& zy, const Grid& grid,
                           const BiasOptions& bias = {.bias_inside = false});

/// The bias itself, before the gain, as a full `[B, h, N, N]` tensor: for looking at, not for
/// speed.
at::Tensor sape2_bias(const at::Tensor& q, const at::Tensor& k, const at::Tensor& ex,
                      const at::Tensor& ey, const Grid& grid, const VectorOptions& vectors = {},
                      const std::string& form = "distance");

/// CoPE over the raster order of all tokens, table `e` `[M, d]`. `scale` (0: 1/√d) acts on the
/// gates and on q·k; the interpolated `q·e` is added outside of it.
at::Tensor cope_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const at::Tensor& e, double scale = 0);

/// Rotary position over the raster index of the patches; prefix tokens stay as they are.
at::Tensor rope(const at::Tensor& x, int64_t prefix = 0);

/// Axial rotary position: the first half of the channel pairs turns with x, the second with y.
at::Tensor rope2d(const at::Tensor& x, const Grid& grid);

/// Rotary position with frequencies `fx`, `fy` `[h, d/2]` along x and y for every pair of channels.
at::Tensor rope2d_mixed(const at::Tensor& x, const at::Tensor& fx, const at::Tensor& fy,
                        const Grid& grid);

/// Which of the three turns q and k.
struct Rotation {
  enum class Angles { raster, axial, mixed };
  Angles angles = Angles::raster;  ///< of rope, rope2d, rope2d_mixed
  at::Tensor fx, fy;               ///< where mixed
};

/// attention() of turned q and k, in one differentiable function where kernels for it exist.
at::Tensor rotary_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const Grid& grid, const Rotation& rotation);

/// While one of these lives, this thread's attention runs on the plain reference formulas instead
/// of the fused kernels, and so does the backward pass through it, whenever and on whichever
/// thread: the oracle for tests and benchmarks.
class ReferenceGuard {
 public:
  ReferenceGuard();
  ~ReferenceGuard();
  ReferenceGuard(const ReferenceGuard&) = delete;
  ReferenceGuard& operator=(const ReferenceGuard&) = delete;

 private:
  bool before_;
};

}  // namespace sape2::ops
