#pragma once

#include "kernels/cuda/stream_tiles.cuh"

/// The distance form's part in the passes on Hopper.
namespace sape2::kernels::cuda {

// Squares that rounding made negative count with their size, no more than what rounding does to
// all others; that costs no instruction.

__device__ inline float root_of_distance(float square) {
  float root;
  asm("{.reg .f32 x; abs.f32 x, %1; sqrt.approx.ftz.f32 %0, x;}" : "=f"(root) : "f"(square));
  return root;
}
/// 1/√x, 0 at 0.
__device__ inline float inverse_root_of_distance(float square) {
  float inverse;
  asm("{.reg .f32 x; abs.f32 x, %1; rsqrt.approx.ftz.f32 %0, x;}" : "=f"(inverse) : "f"(square));
  return fabsf(square) < 1e-30F ? 0.0F : inverse;
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/// Distances of a block's rows from a tile of columns, along one axis.
template <class T>
struct StreamDistance {
  static constexpr int kColumns = kStreamColumns<BiasForm::distance>, kPieces = kColumns / 8;
  int prefix;
  float row_norms[2];

  StreamDistance() = default;
  /// `row` and row + 8 are this lane's.
  __device__ StreamDistance(const AttentionParams& p, std::int64_t batch_head, int row, int axis)
      : prefix(p.geometry.prefix) {
    const float* const norms =
        (axis ? p.vectors.norm_y : p.vectors.norm_x) + batch_head * p.geometry.padded_tokens + row;
    row_norms[0] = norms[0];
    row_norms[1] = norms[8];
  }

  /// From products of vectors to squared distances, in place; `norms` are the columns'.
  __device__ void squares(float (&products)[kPieces][4], const float* norms, int row,
                          int first_column) const {
    const Lane lane;
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
      const float2 norm = *reinterpret_cast<const float2*>(norms + piece * 8 + 2 * lane.t);
#pragma unroll
      for (int e = 0; e < 4; ++e)
        products[piece][e] =
            fmaf(-2.0F, products[piece][e], row_norms[e / 2] + (e % 2 ? norm.y : norm.x));
    }
    if (prefix > min(row - lane.g, first_column)) clear_prefix(products, row, first_column);
  }
  /// Prefix tokens are at no distance: their squares become 0.
  __device__ void clear_prefix(float (&square)[kPieces][4], int row, int first_column) const {
    const Lane lane;
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (row + e / 2 * 8 < prefix || first_column + piece * 8 + 2 * lane.t + e % 2 < prefix)
          square[piece][e] = 0.0F;
  }
};

/// Gradient of the rows' vectors of one axis, Σ_n ω_n (u − u_n) with ω = gradient / distance, as
/// u·Σω − ω·U with the same rounded ω in both terms.
template <class T>
struct StreamDistanceGradient {
  static constexpr int kPieces = kStreamColumns<BiasForm::distance> / 8;
  using Omega = FragmentA<T>[kPieces / 2];
  float sum[8][4] = {};
  float weights[2] = {};  // this lane's share of Σω of both rows

  /// Starts adding a tile's part to `sum`; `columns` describes the columns' vectors.
  __device__ void start(const Omega& omega, std::uint64_t columns) {
    start_column_product<T>(sum, omega, columns);
  }
  __device__ void add_weights(const Omega& omega) {
#pragma unroll
    for (int k = 0; k < kPieces / 2; ++k)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 rounded = unpack<T>(omega[k].r[i]);
        weights[i % 2] += rounded.x + rounded.y;
      }
  }
  /// Says that the product read `omega` up to here.
  __device__ static void keep(Omega& omega) {
#pragma unroll
    for (int k = 0; k < kPieces / 2; ++k)
#pragma unroll
      for (int i = 0; i < 4; ++i) asm volatile("" : "+r"(omega[k].r[i])::"memory");
  }

  /// Writes `factor` times the gradient of this lane's rows; `thread` of the warpgroup.
  __device__ void finish(const Tile<T>& rows, int thread, float factor, float* to, int width) {
    const Lane lane;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float whole = row_sum(weights[half]);
      const int row = thread / 32 * 16 + lane.g + 8 * half;
#pragma unroll
      for (int piece = 0; piece < 8; ++piece) {
        const int entry = piece * 8 + 2 * lane.t;
        if (entry >= width) break;
        *reinterpret_cast<float2*>(to + 8 * half * width + entry) = make_float2(
            factor * (whole * widen(rows.at(row, entry)) - sum[piece][2 * half]),
            factor * (whole * widen(rows.at(row, entry + 1)) - sum[piece][2 * half + 1]));
      }
    }
  }
};

#endif

}  // namespace sape2::kernels::cuda
