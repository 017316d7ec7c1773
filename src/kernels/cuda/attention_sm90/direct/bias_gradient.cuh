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

/// The way back through the direct form's bias, in the queries' pass.
namespace sape2::kernels::cuda::sm90 {

/// Sums of the logits' gradients along grid rows, as eight further columns of the product that
/// makes dq, each for one grid row: behind a tile's keys lie columns of ones. A product takes
/// sixteen slots of a tile, so shared memory holds sixteen rows of eight columns for each grid row
/// that those can stand in. How far behind the keys they lie is part of the product's name for
/// both.
template <int Wide>
struct RowSums {
  static constexpr int kBytes = 16 * 128;
  // Grid rows that are summed up together: fewer where rows are three eights of slots, since
  // sixteen may then stand in two rows, and take eight columns of their own.
  static constexpr int kTogether = Wide == 3 ? 4 : 8;

  /// Which eight columns are for the tile's sixteen number k, `first` its first grid row.
  __device__ static int eight(int first, int k) {
    const int place = first % kTogether;
    if constexpr (Wide == 3) return place / 2 * 3 + k;
    return place + (Wide > 0 ? 2 * k / Wide : k);
  }
  /// Which of them has ones in the first or second eight of rows.
  __device__ static int column(const KeyTiling& columns, int eight, int half) {
    if constexpr (Wide == 3) return eight / 3 * 2 + (eight % 3 * 2 + half) / 3;
    return Wide == 0 && columns.part_width == 8 ? 2 * eight + half : eight;
  }
  /// Each thread writes one row of eight columns, before the matrix unit is told of it, and a
  /// barrier.
  template <class T>
  __device__ static void write(unsigned char* shared, const KeyTiling& columns) {
    const int row = threadIdx.x / 8, own = threadIdx.x % 8, at = column(columns, own, row / 8);
    const auto pair = [&](int i) {
      return pack<T>(at == i ? 1.0F : 0.0F, at == i + 1 ? 1.0F : 0.0F);
    };
    *reinterpret_cast<uint4*>(Tile<T>{shared, 16, 64}.piece(row, own)) =
        make_uint4(pair(0), pair(2), pair(4), pair(6));
  }
};

/// Gradient of the queries' vectors: sums of the logits' gradients over grid columns and rows. Of
/// whole grids those along y take the place of y itself, which is read no more once they are made,
/// in the end those along x that of x, and both leave by the copy engine.
template <class T, int Wide, bool Whole>
struct DirectBiasGradient {
  using Sums = RowSums<Wide>;
  static constexpr int kPieces = kTilePieces<Wide>, kStored = Wide > 0 ? Wide : kPieces;
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
    for (int piece = 0; piece < kStored; ++piece)
#pragma unroll
      for (int e = 0; e < 4; ++e) sum_x[piece][e] = 0.0F;
  }
  /// Adds a piece of a tile along x; columns without a token must have gradient 0.
  __device__ void add_x(const float (&gradient)[4], int piece) {
#pragma unroll
    for (int e = 0; e < 4; ++e) sum_x[piece % kStored][e] += gradient[e];
  }
  /// Starts adding a tile of the grid to dq and, in its last piece, along y.
  __device__ void start_sums(float (&dq)[9][4], const FragmentA<T> (&gradient)[kPieces / 2],
                             const Tile<T>& keys, const KeyTiling::Place& at) const {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    // The name's lower half: where the keys begin and, 2¹⁶ times, how far behind them the ones lie.
    const std::uint32_t from = shared_address(keys.data) / 16;
#pragma unroll
    for (int k = 0; k < kPieces / 2; ++k) {
      const std::uint32_t place = from + k * Sums::kBytes / 16;
      const std::uint32_t behind = ones / 16 + Sums::eight(at.first_row, k);
      const std::uint32_t lower = (behind << 16) - place * 0xffffu;
      register_column_product<T>(dq, gradient[k],
                                 (descriptor(0) & ~std::uint64_t{0xffffffffu}) | lower);
    }
#endif
  }
  /// After a tile's products: writes what some grid rows have summed up, if it was their last.
  __device__ void end_rows(float (&sum)[4], const KeyTiling::Place& at, const RowsY<T, Wide>& y) {
    constexpr int kTogether = Sums::kTogether;
    const int next = at.first_row + (Wide > 0 ? kTileRows<Wide> : columns.rows_per_tile);
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
    const int warp = known_to_all_lanes(threadIdx.x / 32), first = warp * 16;
    const int row = first + threadIdx.x % 16, piece = threadIdx.x % 32 / 16;
    const std::uint32_t at = shared_address(panel_x) + row * RowBytes +
                             (piece ^ row * RowBytes / 128 % (RowBytes / 16)) * 16;
#pragma unroll
    for (int k = 0; k < (Wide + 1) / 2; ++k) {
      float pieces[2][4];
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        const int own = 2 * k + e / 4;
        pieces[e / 4][e % 4] = own < Wide ? factor * sum_x[own % kStored][e % 4] : 0.0F;
      }
      store_fragment<T>(at ^ 32 * k, as_a<T>(pieces[0], pieces[1]));
    }
    publish_to_matrix_unit();
    __syncwarp();
    if (is_chosen()) {
      const int token = block.row_tile * kRowTile + first;
      store_box(all.dx, block.vectors(token), panel_x + first * RowBytes);
      for (int panel = 0; panel < y_panels; ++panel)
        store_box(all.dy, block.vectors(token, panel * 64),
                  panels_y + panel * kTileBytes + first * 128);
    }
  }
  /// Writes what a part of the grid's columns has summed up.
  __device__ void end_part(int part) {
    const Lane lane;
    const int wide = PieceWalk<Wide>(columns).wide;
#pragma unroll
    for (int piece = 0; piece < kStored; ++piece) {
      // Pieces that lie below one another in the tile stand for the same grid columns.
      if constexpr (Wide == 0) {
#pragma unroll
        for (int below = piece + 1; below < kStored; ++below) {
          const float same = (below - piece) % wide == 0 ? 1.0F : 0.0F;
#pragma unroll
          for (int e = 0; e < 4; ++e)
            sum_x[piece][e] = fmaf(same, sum_x[below][e], sum_x[piece][e]);
        }
        if (piece >= wide) break;
      }
      const int column = part * columns.part_width + piece * 8 + 2 * lane.t;
      if (column >= columns.across) continue;
#pragma unroll
      for (int half = 0; half < 2; ++half)
        write_x(sum_x[piece][2 * half], sum_x[piece][2 * half + 1], half, column);
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
  __device__ void write_y(float sum, float next, const RowsY<T, Wide>& y, int half, int part,
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
