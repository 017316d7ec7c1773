#pragma once

#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/arch/wgmma.cuh"
#include "kernels/cuda/attention_sm80/smem.h"
#include "kernels/cuda/common/element.cuh"
#include "kernels/cuda/common/tile.cuh"
#include "kernels/cuda/host/params.h"

/// The distance form, b_in = ‖x_i − x_n‖ + ‖y_i − y_n‖, summed over one or two sets of vectors.
///
/// In 16 bits a distance comes from |u|² + |w|² − 2u·w, where the lengths were made by the same
/// tensor-core sums as the products: equal vectors are at distance exactly 0. In float32 it comes
/// from differences.
namespace sape2::kernels::cuda::sm80 {

/// √x and 1/√x, the latter 0 at 0; with the fast units where T keeps few digits anyway.
template <class T>
__device__ float root_of(float x) {
  if constexpr (kIsFp32<T>) return sqrtf(x);
  float root;
  asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(root) : "f"(x));
  return root;
}
template <class T>
__device__ float inverse_root_of(float x) {
  if constexpr (kIsFp32<T>) return x == 0.0F ? 0.0F : 1.0F / sqrtf(x);
  float inverse;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(x));
  return x < 1e-30F ? 0.0F : inverse;
}

/// Vectors of one axis and one set: this block's rows, and two buffers for tiles of columns.
template <class T, int N8>
struct CenteredTiles {
  const T* vectors;  // this head's (padded_tokens, width)
  const float* norms;
  int width;
  unsigned char* shared;
  float row_norm[2];

  __host__ __device__ static int bytes(int width) {
    return centered_bytes<sizeof(T)>(N8 * 8, width);
  }
  __device__ Tile<T> rows() const { return {shared, kRowTile, width}; }
  __device__ Tile<T> columns(int buffer) const {
    return {shared + Tile<T>::bytes(kRowTile + buffer * N8 * 8, width), N8 * 8, width};
  }
  __device__ float* column_norms(int buffer) const {
    return reinterpret_cast<float*>(shared + Tile<T>::bytes(kRowTile + 2 * N8 * 8, width)) +
           buffer * N8 * 8;
  }

  __device__ void load(const Tile<T>& tile, int first) const {
    const int chunks = width / Tile<T>::kPerChunk;
    const T* const from = vectors + std::int64_t(first) * width;
    for (int i = threadIdx.x; i < tile.rows * chunks; i += kThreads)
      cp_async_16(tile.chunk(i / chunks, i % chunks), from + i * Tile<T>::kPerChunk, true);
  }
  __device__ void load_columns(int buffer, int first) const {
    load(columns(buffer), first);
    if (threadIdx.x < N8 * 2)
      cp_async_16(column_norms(buffer) + 4 * threadIdx.x, norms + first + 4 * threadIdx.x, true);
  }

  /// The squared distances of this warp's 16 rows from the tile's columns.
  __device__ void squared(float (&d)[N8][4], int buffer) const {
    const Lane lane;
    const int row = threadIdx.x / 32 * 16;
    const auto tile = columns(buffer), rows = this->rows();
#pragma unroll
    for (int n8 = 0; n8 < N8; ++n8)
#pragma unroll
      for (int e = 0; e < 4; ++e) d[n8][e] = 0.0F;
    if constexpr (kIsFp32<T>) {
      for (int k = 0; k < width; k += 4) {
        const auto top = *reinterpret_cast<const float4*>(&rows.at(row + lane.g, k));
        const auto bottom = *reinterpret_cast<const float4*>(&rows.at(row + lane.g + 8, k));
#pragma unroll
        for (int n8 = 0; n8 < N8; ++n8)
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const float4& u = e / 2 ? bottom : top;
            const auto w =
                *reinterpret_cast<const float4*>(&tile.at(n8 * 8 + 2 * lane.t + e % 2, k));
            const float a = u.x - w.x, b = u.y - w.y, c = u.z - w.z, f = u.w - w.w;
            d[n8][e] += a * a + b * b + c * c + f * f;
          }
      }
    } else {
      if (Tile<T>::swizzled(width) && width == 64) {
        row_product<64>(d, rows, tile);
      } else {
        add_product_with_rows(d, rows, row, tile, width);
      }
#pragma unroll
      for (int n8 = 0; n8 < N8; ++n8) {
        const auto norm =
            *reinterpret_cast<const float2*>(column_norms(buffer) + n8 * 8 + 2 * lane.t);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          // Written so that a number that is none stays so.
          const float square = fmaf(-2.0F, d[n8][e], row_norm[e / 2] + (e % 2 ? norm.y : norm.x));
          d[n8][e] = square < 0.0F ? 0.0F : square;
        }
      }
    }
  }
};

/// All sets and axes of one block.
template <class T, int N8, int Sets>
struct DistanceTiles {
  using Tiles = CenteredTiles<T, N8>;
  Tiles axes[Sets][2];
  int prefix;

  __device__ DistanceTiles(const AttentionParams& p, std::int64_t batch_head, int first_row,
                           int row, unsigned char* shared)
      : prefix(p.geometry.prefix) {
    const auto& v = p.vectors;
    const std::int64_t padded = p.geometry.padded_tokens;
#pragma unroll
    for (int set = 0; set < Sets; ++set)
#pragma unroll
      for (int axis = 0; axis < 2; ++axis) {
        auto& tiles = axes[set][axis];
        const std::int64_t head = set * p.geometry.batch_heads + batch_head;
        tiles.width = axis ? v.width_y : v.width_x;
        tiles.vectors = static_cast<const T*>(axis ? v.y : v.x) + head * padded * tiles.width;
        tiles.norms = (axis ? v.norm_y : v.norm_x) + head * padded;
        tiles.shared = shared;
        shared += Tiles::bytes(tiles.width);
        tiles.load(tiles.rows(), first_row);
        tiles.row_norm[0] = tiles.norms[row];
        tiles.row_norm[1] = tiles.norms[row + 8];
      }
  }

  __device__ Tiles centered(int set, int axis) const {
    return set == 0 ? axes[0][axis] : axes[Sets - 1][axis];
  }

  __device__ void load_columns(int buffer, int first) const {
#pragma unroll
    for (int set = 0; set < Sets; ++set)
#pragma unroll
      for (int axis = 0; axis < 2; ++axis) axes[set][axis].load_columns(buffer, first);
  }

  /// b = the sum of all distances; for the axes of `wanted_set` also 1/distance, 0 where that is 0.
  template <bool WithInverse>
  __device__ void bias(float (&b)[N8][4], float (*inverse)[N8][4], int wanted_set, int buffer,
                       int row, int first_column) const {
    const Lane lane;
#pragma unroll
    for (int n8 = 0; n8 < N8; ++n8)
#pragma unroll
      for (int e = 0; e < 4; ++e) b[n8][e] = 0.0F;
#pragma unroll
    for (int set = 0; set < Sets; ++set)
#pragma unroll
      for (int axis = 0; axis < 2; ++axis) {
        float d[N8][4];
        axes[set][axis].squared(d, buffer);
        if (prefix > 0) {
#pragma unroll
          for (int n8 = 0; n8 < N8; ++n8)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
              const int column = first_column + n8 * 8 + 2 * lane.t + e % 2;
              if (row + e / 2 * 8 < prefix || column < prefix) d[n8][e] = 0.0F;
            }
        }
#pragma unroll
        for (int n8 = 0; n8 < N8; ++n8)
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const float square = d[n8][e];
            if constexpr (!WithInverse) {
              b[n8][e] += root_of<T>(square);
            } else {
              const float reciprocal = inverse_root_of<T>(square);
              // Float32 shows whether the weights are those of the forward pass.
              b[n8][e] =
                  kIsFp32<T> ? b[n8][e] + root_of<T>(square) : fmaf(square, reciprocal, b[n8][e]);
              if (Sets == 1 || set == wanted_set) inverse[axis][n8][e] = reciprocal;
            }
          }
      }
  }
};

/// Gradient of the rows' vectors of one axis, Σ_n ω_n (u − u_n) with ω = gradient / distance, for a
/// span of up to 64 entries. In 16 bits it is u·Σω − ω·U with the same rounded ω in both terms.
template <class T, int N8>
struct DistanceGradient {
  static constexpr int kSpanN8 = 8;
  float sum[kSpanN8][4];
  float weight[2];

  __device__ DistanceGradient() {
#pragma unroll
    for (int n8 = 0; n8 < kSpanN8; ++n8)
#pragma unroll
      for (int e = 0; e < 4; ++e) sum[n8][e] = 0.0F;
    weight[0] = weight[1] = 0.0F;
  }

  __device__ void add(const CenteredTiles<T, N8>& tiles, int buffer, float (&omega)[N8][4],
                      int first_entry) {
    const auto columns = tiles.columns(buffer);
#pragma unroll
    for (int k = 0; k < N8; k += 2) {
      const auto fragment = as_a<T>(omega[k], omega[k + 1]);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 pair = unpack<T>(fragment.r[i]);
        weight[i % 2] += pair.x + pair.y;
      }
    }
    if (tiles.width == 64) {
      add_column_product<T>(sum, omega, columns);
      return;
    }
#pragma unroll
    for (int k = 0; k < N8; k += 2) {
      const auto fragment = as_a<T>(omega[k], omega[k + 1]);
#pragma unroll
      for (int n8 = 0; n8 < kSpanN8; n8 += 2) {
        if (first_entry + n8 * 8 >= tiles.width) break;
        FragmentB<T> b[2];
        load_b_columns(b, columns, k * 8, first_entry + n8 * 8);
        mma(sum[n8], fragment, b[0]);
        mma(sum[n8 + 1], fragment, b[1]);
      }
    }
  }

  /// The gradient itself, through use(entry, half, value).
  template <class Use>
  __device__ void finish(const CenteredTiles<T, N8>& tiles, int first_entry, Use use) {
    const Lane lane;
    const auto rows = tiles.rows();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      weight[half] += __shfl_xor_sync(0xffffffffu, weight[half], 1);
      weight[half] += __shfl_xor_sync(0xffffffffu, weight[half], 2);
    }
#pragma unroll
    for (int n8 = 0; n8 < kSpanN8; ++n8) {
      if (first_entry + n8 * 8 >= tiles.width) break;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int entry = first_entry + n8 * 8 + 2 * lane.t + e % 2;
        const float own = widen(rows.at(threadIdx.x / 32 * 16 + lane.g + e / 2 * 8, entry));
        use(entry, e / 2, weight[e / 2] * own - sum[n8][e]);
      }
    }
  }
};

/// In float32 the differences themselves are summed; a lane keeps one entry in four of its rows.
template <class T, int N8>
requires kIsFp32<T>
struct DistanceGradient<T, N8> {
  static constexpr int kSpanN8 = 8;
  float sum[16][2];

  __device__ DistanceGradient() {
#pragma unroll
    for (int i = 0; i < 16; ++i) sum[i][0] = sum[i][1] = 0.0F;
  }

  __device__ void add(const CenteredTiles<T, N8>& tiles, int buffer, float (&omega)[N8][4],
                      int first_entry) {
    const Lane lane;
    const auto columns = tiles.columns(buffer), rows = tiles.rows();
    const int row = threadIdx.x / 32 * 16 + lane.g;
#pragma unroll
    for (int quad = 0; quad < 16; ++quad) {
      const int entry = first_entry + 4 * quad;
      if (entry >= tiles.width) break;
      float partial[2][4] = {};
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const auto u = *reinterpret_cast<const float4*>(&rows.at(row + 8 * half, entry));
#pragma unroll
        for (int n8 = 0; n8 < N8; ++n8)
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const auto w =
                *reinterpret_cast<const float4*>(&columns.at(n8 * 8 + 2 * lane.t + e, entry));
            const float o = omega[n8][2 * half + e];
            partial[half][0] += o * (u.x - w.x);
            partial[half][1] += o * (u.y - w.y);
            partial[half][2] += o * (u.z - w.z);
            partial[half][3] += o * (u.w - w.w);
          }
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          float all = partial[half][e];
          all += __shfl_xor_sync(0xffffffffu, all, 1);
          all += __shfl_xor_sync(0xffffffffu, all, 2);
          if (e == lane.t) sum[quad][half] += all;
        }
      }
    }
  }

  template <class Use>
  __device__ void finish(const CenteredTiles<T, N8>& tiles, int first_entry, Use use) {
    const Lane lane;
#pragma unroll
    for (int quad = 0; quad < 16; ++quad) {
      const int entry = first_entry + 4 * quad + lane.t;
      if (entry < tiles.width) {
        use(entry, 0, sum[quad][0]);
        use(entry, 1, sum[quad][1]);
      }
    }
  }
};

}  // namespace sape2::kernels::cuda::sm80
