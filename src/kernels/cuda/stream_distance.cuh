#pragma once

#include "kernels/cuda/stream_tiles.cuh"

/// The distance form's part in the passes on Hopper.
namespace sape2::kernels::cuda {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/// Distances of a block's rows from a tile of columns.
template <class T>
struct StreamDistance {
  static constexpr int kColumns = kStreamColumns<BiasForm::distance>, kPieces = kColumns / 8;
  const float* source;  // of this thread's column and axis
  float* notes;         // [tile % 2][axis][column]
  int prefix;
  float row_norms[2][2];

  __device__ StreamDistance(const AttentionParams& p, std::int64_t batch_head, int row,
                            float* shared)
      : notes(shared), prefix(p.geometry.prefix) {
    const std::int64_t first = batch_head * p.geometry.padded_tokens;
    const auto& v = p.vectors;
    source = (threadIdx.x < kColumns ? v.norm_x : v.norm_y) + first + threadIdx.x % kColumns;
    if (v.norm_x == nullptr) return;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      row_norms[0][half] = v.norm_x[first + row + 8 * half];
      row_norms[1][half] = v.norm_y[first + row + 8 * half];
    }
  }
  /// This thread's column's squared length, and where it is kept for all.
  __device__ float column_norm(int tile) const {
    return threadIdx.x < 2 * kColumns ? source[tile * kColumns] : 0.0F;
  }
  __device__ void note_norms(int tile, float norm) const {
    if (threadIdx.x < 2 * kColumns) notes[tile % 2 * 2 * kColumns + threadIdx.x] = norm;
  }

  /// From products of vectors to squared distances, in place.
  __device__ void squares(float (&products)[kPieces][4], int axis, int tile, int row) const {
    const Lane lane;
    hold(products);
    const float* const norms = notes + (tile % 2 * 2 + axis) * kColumns + 2 * lane.t;
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
      const float2 norm = *reinterpret_cast<const float2*>(norms + piece * 8);
#pragma unroll
      for (int e = 0; e < 4; ++e)
        products[piece][e] =
            fmaf(-2.0F, products[piece][e], row_norms[axis][e / 2] + (e % 2 ? norm.y : norm.x));
    }
    if (prefix > 0) clear_prefix(products, prefix, row, tile * kColumns);
  }

  /// Adds `factor` times both axes' distances to logits.
  __device__ void add(float (&logits)[kPieces][4], float (&products)[2][kPieces][4], int tile,
                      int row, float factor) const {
    squares(products[0], 0, tile, row);
    squares(products[1], 1, tile, row);
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        logits[piece][e] =
            fmaf(root_of_distance(products[0][piece][e]) + root_of_distance(products[1][piece][e]),
                 factor, logits[piece][e]);
  }

  /// Both axes' distances added up, and in place of the products, their inverses.
  __device__ void lengths(float (&length)[kPieces][4], float (&products)[2][kPieces][4], int tile,
                          int row) const {
#pragma unroll
    for (int axis = 0; axis < 2; ++axis) {
      auto& square = products[axis];
      squares(square, axis, tile, row);
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float inverse = inverse_root_of_distance(square[piece][e]);
          length[piece][e] = axis == 0 ? square[piece][e] * inverse
                                       : fmaf(square[piece][e], inverse, length[piece][e]);
          square[piece][e] = inverse;
        }
    }
  }
};

/// Gradient of the rows' vectors of one axis, Σ_n ω_n (u − u_n) with ω = gradient / distance, as
/// u·Σω − ω·U with the same rounded ω in both terms.
template <class T>
struct StreamDistanceGradient {
  static constexpr int kPieces = kStreamColumns<BiasForm::distance> / 8;
  float sum[8][4] = {};
  float weight[2] = {0.0F, 0.0F};

  /// Starts adding a tile's part to `sum`.
  __device__ void start(const float (&inverse)[kPieces][4], const float (&gradient)[kPieces][4],
                        float factor, const Tile<T>& columns) {
    FragmentA<T> omega[kPieces / 2];
#pragma unroll
    for (int k = 0; k < kPieces / 2; ++k) {
      float pair[2][4];
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          pair[i][e] = inverse[2 * k + i][e] * (gradient[2 * k + i][e] * factor);
      omega[k] = as_a<T>(pair[0], pair[1]);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 rounded = unpack<T>(omega[k].r[i]);
        weight[i % 2] += rounded.x + rounded.y;
      }
    }
    start_column_product<T>(sum, omega, columns);
  }

  /// Writes the gradient of this lane's rows, or adds it to what is there.
  template <bool Add>
  __device__ void finish(const Tile<T>& rows, float* to, int width) {
    const Lane lane;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float whole = row_sum(weight[half]);
      const int row = threadIdx.x / 32 * 16 + lane.g + 8 * half;
#pragma unroll
      for (int piece = 0; piece < 8; ++piece) {
        const int entry = piece * 8 + 2 * lane.t;
        if (entry >= width) break;
        float2& place = *reinterpret_cast<float2*>(to + 8 * half * width + entry);
        float2 value =
            make_float2(whole * widen(rows.at(row, entry)) - sum[piece][2 * half],
                        whole * widen(rows.at(row, entry + 1)) - sum[piece][2 * half + 1]);
        if (Add) value = make_float2(value.x + place.x, value.y + place.y);
        place = value;
      }
    }
  }
};

#endif

}  // namespace sape2::kernels::cuda
