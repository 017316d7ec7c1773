#pragma once

#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/arch/tma.cuh"
#include "kernels/cuda/arch/wgmma.cuh"
#include "kernels/cuda/arch/wgmma_instructions.cuh"
#include "kernels/cuda/attention_sm90/direct/bias.cuh"
#include "kernels/cuda/attention_sm90/kernels.h"
#include "kernels/cuda/attention_sm90/tiles.cuh"
#include "kernels/cuda/attention_sm90/tiling.h"
#include "kernels/cuda/common/element.cuh"
#include "kernels/cuda/common/tile.cuh"
#include "kernels/cuda/host/params.h"

/// The backward pass through the direct form's bias, in the dq pass.
namespace sape2::kernels::cuda::sm90 {

/// Sums of the logits' gradients along grid rows, as eight further columns of the product that
/// makes dq, each for one grid row: behind a tile's keys lie columns of ones. A product takes
/// sixteen slots of a tile, so shared memory holds sixteen rows of eight columns for each grid row
/// that those can stand in. How far behind the keys they lie is part of the product's name for
/// both.
template <int RowN8>
struct RowSums {
  static constexpr int kBytes = 16 * 128;
  // Grid rows that are summed up together: fewer where rows are three eights of slots, since
  // sixteen may then stand in two rows, and take eight columns of their own.
  static constexpr int kTogether = RowN8 == 3 ? 4 : 8;

  /// Which eight columns are for the tile's sixteen number k, `first` its first grid row.
  __device__ static int eight(int first, int k) {
    const int place = first % kTogether;
    if constexpr (RowN8 == 3) return place / 2 * 3 + k;
    return place + (RowN8 > 0 ? 2 * k / RowN8 : k);
  }
  /// Which of them has ones in the first or second eight of rows.
  __device__ static int column(const KeyTiling& columns, int eight, int half) {
    if constexpr (RowN8 == 3) return eight / 3 * 2 + (eight % 3 * 2 + half) / 3;
    return RowN8 == 0 && columns.part_width == 8 ? 2 * eight + half : eight;
  }
  /// Each thread writes one row of eight columns, before wgmma is told of it, and a
  /// barrier.
  template <class T>
  __device__ static void write(unsigned char* shared, const KeyTiling& columns) {
    const int row = threadIdx.x / 8, own = threadIdx.x % 8, at = column(columns, own, row / 8);
    const auto pair = [&](int i) {
      return pack<T>(at == i ? 1.0F : 0.0F, at == i + 1 ? 1.0F : 0.0F);
    };
    *reinterpret_cast<uint4*>(Tile<T>{shared, 16, 64}.chunk(row, own)) =
        make_uint4(pair(0), pair(2), pair(4), pair(6));
  }
};

/// Gradient of the queries' vectors: sums of the logits' gradients over grid columns and rows. Of
/// whole grids those along y take the place of y itself, which is read no more once they are made,
/// in the end those along x that of x, and both leave by TMA.
template <class T, int RowN8, bool Whole>
struct DirectBiasGradient {
  using Sums = RowSums<RowN8>;
  static constexpr int kN8 = kTileN8<RowN8>, kStored = RowN8 > 0 ? RowN8 : kN8;
  const AttentionBackwardParams& p;
  const KeyTiling& columns;
  const BlockCoord& block;
  float factor;        // from logit to bias
  std::uint32_t ones;  // where RowSums has them
  float sum_x[kStored][4];
  float with_bias = 0.0F;

  __device__ DirectBiasGradient(const AttentionBackwardParams& params, const KeyTiling& all,
                                const BlockCoord& own, float f, const unsigned char* shared)
      : p(params), columns(all), block(own), factor(f), ones(shared_address(shared)) {
    clear_x();
  }
  __device__ void clear_x() {
#pragma unroll
    for (int n8 = 0; n8 < kStored; ++n8)
#pragma unroll
      for (int e = 0; e < 4; ++e) sum_x[n8][e] = 0.0F;
  }
  /// Adds a n8 fragment of a tile along x; columns without a token must have gradient 0.
  __device__ void add_x(const float (&gradient)[4], int n8) {
#pragma unroll
    for (int e = 0; e < 4; ++e) sum_x[n8 % kStored][e] += gradient[e];
  }
  /// Starts adding a tile of the grid to dq and, in its last n8 fragment, along y.
  __device__ void start_sums(float (&dq)[9][4], const FragmentA<T> (&gradient)[kN8 / 2],
                             const Tile<T>& keys, const KeyTiling::Place& at) const {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    // The name's lower half: where the keys begin and, 2¹⁶ times, how far behind them the ones lie.
    const std::uint32_t from = shared_address(keys.data) / 16;
#pragma unroll
    for (int k = 0; k < kN8 / 2; ++k) {
      const std::uint32_t place = from + k * Sums::kBytes / 16;
      const std::uint32_t behind = ones / 16 + Sums::eight(at.first_row, k);
      const std::uint32_t lower = (behind << 16) - place * 0xffffu;
      wgmma_rs_mn_major_n72<T>(dq, gradient[k],
                               (smem_descriptor(0) & ~std::uint64_t{0xffffffffu}) | lower);
    }
#endif
  }
  /// After a tile's products: writes what some grid rows have summed up, if it was their last.
  __device__ void end_rows(float (&sum)[4], const KeyTiling::Place& at, const RowsY<T, RowN8>& y) {
    constexpr int kTogether = Sums::kTogether;
    const int next = at.first_row + (RowN8 > 0 ? kTileRows<RowN8> : columns.rows_per_tile);
    if (!at.in_grid || (next % kTogether != 0 && next < columns.down)) return;
    const Lane lane;
    const int row = at.first_row / kTogether * kTogether + 2 * lane.t;
    if (2 * lane.t < kTogether && row < columns.down) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if constexpr (Whole) {
          store_shared_pair(y.at(row) + half * 1024,
                            pack<T>(factor * sum[2 * half], factor * sum[2 * half + 1]));
        } else {
          write_y(sum[2 * half], sum[2 * half + 1], y, half, at.part, row);
        }
      }
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) sum[e] = 0.0F;
    __syncwarp();
  }
  /// Of whole grids: starts to write all of it, by way of the vectors' own panels, of which x's has
  /// rows of `RowBytes`.
  template <int RowBytes>
  __device__ void store(const BackwardParams& all, unsigned char* panel_x, unsigned char* panels_y,
                        int y_panels) {
    const int warp = warp_uniform(threadIdx.x / 32), first = warp * 16;
    const int row = first + threadIdx.x % 16, n8 = threadIdx.x % 32 / 16;
    const std::uint32_t at = shared_address(panel_x) + row * RowBytes +
                             (n8 ^ row * RowBytes / 128 % (RowBytes / 16)) * 16;
#pragma unroll
    for (int k = 0; k < (RowN8 + 1) / 2; ++k) {
      float stored[2][4];
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        const int own = 2 * k + e / 4;
        stored[e / 4][e % 4] = own < RowN8 ? factor * sum_x[own % kStored][e % 4] : 0.0F;
      }
      store_fragment<T>(at ^ 32 * k, as_a<T>(stored[0], stored[1]));
    }
    fence_proxy_async();
    __syncwarp();
    if (elect_one()) {
      const int token = block.row_tile * kRowTile + first;
      tma_store(all.dx, block.vectors(token), panel_x + first * RowBytes);
      for (int panel = 0; panel < y_panels; ++panel)
        tma_store(all.dy, block.vectors(token, panel * 64),
                  panels_y + panel * kTileBytes + first * 128);
    }
  }
  /// Writes what a part of the grid's columns has summed up.
  __device__ void end_part(int part) {
    const Lane lane;
    const int row_n8 = N8Walk<RowN8>(columns).row_n8;
#pragma unroll
    for (int n8 = 0; n8 < kStored; ++n8) {
      // N8 that lie below one another in the tile stand for the same grid columns.
      if constexpr (RowN8 == 0) {
#pragma unroll
        for (int below = n8 + 1; below < kStored; ++below) {
          const float same = (below - n8) % row_n8 == 0 ? 1.0F : 0.0F;
#pragma unroll
          for (int e = 0; e < 4; ++e) sum_x[n8][e] = fmaf(same, sum_x[below][e], sum_x[n8][e]);
        }
        if (n8 >= row_n8) break;
      }
      const int column = part * columns.part_width + n8 * 8 + 2 * lane.t;
      if (column >= columns.across) continue;
#pragma unroll
      for (int half = 0; half < 2; ++half)
        write_x(sum_x[n8][2 * half], sum_x[n8][2 * half + 1], half, column);
    }
    clear_x();
  }

 private:
  /// Of one of this lane's two rows.
  __device__ std::int64_t token(int half) const {
    return block.batch_head * p.forward.geometry.padded_tokens + block.row_tile * kRowTile +
           threadIdx.x / 32 * 16 + Lane().g + 8 * half;
  }
  /// Two neighbouring grid columns of one of the lane's rows. There may be no second one; its
  /// gradient is then 0, and its place among the padding.
  __device__ void write_x(float sum, float next, int half, int column) {
    const std::int64_t place = token(half) * p.forward.vectors.width_x + column;
    if (p.dgain != nullptr) {
      const T* const x = static_cast<const T*>(p.forward.vectors.x) + place;
      with_bias = fmaf(sum, widen(x[0]), with_bias);
      if (column + 1 < columns.across) with_bias = fmaf(next, widen(x[1]), with_bias);
    }
    *reinterpret_cast<std::uint32_t*>(static_cast<T*>(p.dx) + place) =
        pack<T>(factor * sum, factor * next);
  }
  /// Two neighbouring grid rows of one of the lane's rows. There may be no second one here either.
  __device__ void write_y(float sum, float next, const RowsY<T, RowN8>& y, int half, int part,
                          int row) {
    if (p.dgain != nullptr) {
      const std::uint32_t own = y.at(row) + half * 1024;
      with_bias = fmaf(sum, load_shared_number<T>(own), with_bias);
      if (row + 1 < columns.down) with_bias = fmaf(next, load_shared_number<T>(own + 2), with_bias);
    }
    auto& pair = *reinterpret_cast<std::uint32_t*>(static_cast<T*>(p.dy) +
                                                   token(half) * p.forward.vectors.width_y + row);
    const float2 before = part == 0 ? make_float2(0.0F, 0.0F) : unpack<T>(pair);
    pair = pack<T>(fmaf(factor, sum, before.x), fmaf(factor, next, before.y));
  }
};

}  // namespace sape2::kernels::cuda::sm90
