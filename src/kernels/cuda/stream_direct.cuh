#pragma once

#include "kernels/cuda/stream_tiles.cuh"

/// The direct form, b_in = x_i[column of n] + y_i[row of n], in the streaming kernels. Tiles of
/// keys are whole grid rows padded to eights (StreamColumns), so eight neighbouring keys are eight
/// neighbouring entries of x. A product with a diagonal of 8×8 then takes a piece of x, two numbers
/// a register, to where the scores are gathered, and a piece of the logits' gradients to the sums
/// of x's gradient: one instruction for four numbers a lane. The scores' product starts from the
/// bias.
namespace sape2::kernels::cuda {

/// A number along the diagonal of an 8×8 piece of A or B, in two parts that together have twice the
/// digits of T.
template <class T>
struct Diagonal {
  std::uint32_t high, low;
  bool split;  // whether there is a low part

  __device__ explicit Diagonal(float value) {
    const float rounded = widen(narrow<T>(value)), rest = value - rounded;
    split = rest != 0.0F;
    high = place(rounded);
    low = place(rest);
  }
  __device__ static std::uint32_t place(float value) {
    const Lane lane;
    return pack<T>(lane.g == 2 * lane.t ? value : 0.0F, lane.g == 2 * lane.t + 1 ? value : 0.0F);
  }
};

/// From the bias to the scores, which are multiplied by `scale` afterwards.
__device__ inline float bias_ratio(const AttentionParams& p, int head) {
  return per_head(p.gain, head, 1.0F) / (p.inside ? 1.0F : p.scale);
}
/// From the bias to the logits.
__device__ inline float bias_factor(const AttentionParams& p, int head) {
  return per_head(p.gain, head, 1.0F) * (p.inside ? p.scale : 1.0F);
}

/// Walks over the 8-wide pieces of a tile: how far along its grid row each is. `Wide`: pieces of a
/// grid row (or its part) where that is known beforehand, else 0; known, nothing of it is left at
/// run time.
template <int Wide>
struct PieceWalk {
  int wide, across = 0, row = 0;

  __device__ explicit PieceWalk(const StreamColumns& columns)
      : wide(Wide > 0 ? Wide : columns.part_width / 8) {}
  __device__ void next() {
    ++across;
    if (across == wide) {
      across = 0;
      ++row;
    }
  }
};

/// Queries along rows, keys along grid columns: x_i of a lane's places stays the same from tile to
/// tile, in registers or, where those are short, in shared memory, one panel a part of the grid;
/// y_i is one number a grid row.
template <class T, int Wide, bool InRegisters>
struct StreamDirect {
  static constexpr int kPieces = 8, kStored = Wide > 0 ? Wide : kPieces;
  const StreamColumns& columns;
  Tile<T> x, y;  // of the block's rows
  float ratio;
  Diagonal<T> diagonal;
  std::uint32_t along_x[InRegisters ? kStored : 1][2];

  __device__ StreamDirect(const AttentionParams& p, const StreamColumns& all, int head,
                          const Tile<T>& rows_x, const Tile<T>& rows_y)
      : columns(all), x(rows_x), y(rows_y), ratio(bias_ratio(p, head)), diagonal(ratio) {}

  /// A product of eights needs numbers even where it multiplies by 0, so nothing beyond the grid is
  /// read.
  __device__ void begin_part(const AttentionParams& p, const StreamBlock& block, int row,
                             int part) {
    if constexpr (InRegisters) {
      const T* const from = static_cast<const T*>(p.vectors.x) +
                            (block.batch_head * p.geometry.padded_tokens + row) * p.vectors.width_x;
      PieceWalk<Wide> walk(columns);
#pragma unroll
      for (int piece = 0; piece < kStored; ++piece, walk.next()) {
        const int column = part * columns.part_width + walk.across * 8 + 2 * (threadIdx.x % 4);
        const int inside = columns.across - column;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          std::uint32_t pair = 0;
          if (inside > 0)
            pair = *reinterpret_cast<const std::uint32_t*>(from + 8 * half * p.vectors.width_x +
                                                           column);
          along_x[piece][half] = inside == 1 ? pair & 0xffffu : pair;
        }
      }
    }
  }
  /// x at two neighbouring pieces of a tile, as one fragment.
  __device__ FragmentA<T> pieces_x(int part, int piece, int across, int next_across) const {
    FragmentA<T> a;
    if constexpr (InRegisters) {
#pragma unroll
      for (int i = 0; i < 4; ++i) a.r[i] = along_x[(piece + i / 2) % kStored][i % 2];
    } else {
      const int lane = threadIdx.x % 32;
      load_pieces(a.r, x.piece(threadIdx.x / 32 * 16 + lane % 16,
                               8 * part + (lane < 16 ? across : next_across)));
    }
    return a;
  }
  /// y of one of this lane's rows at a grid row; 0 below the grid.
  __device__ float along_y(int grid_row, int half) const {
    const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + 8 * half;
    return grid_row < columns.down ? widen(y.at(row, grid_row)) : 0.0F;
  }

  /// c += x · diagonal for one tile.
  __device__ void add_x(float (&c)[kPieces][4], int part, std::uint32_t factor) const {
    PieceWalk<Wide> walk(columns);
#pragma unroll
    for (int piece = 0; piece < kPieces; piece += 2) {
      const int across = walk.across;
      walk.next();
      const auto own_x = pieces_x(part, piece, across, walk.across);
      walk.next();
#pragma unroll
      for (int i = 0; i < 2; ++i)
        multiply_add_eight<T>(c[piece + i], own_x.r[2 * i], own_x.r[2 * i + 1], factor);
    }
  }
  /// The bias of one tile as scores; 0 for prefix tokens.
  __device__ void start(float (&c)[kPieces][4], const StreamColumns::Place& at) const {
    PieceWalk<Wide> walk(columns);
    const float ratio_here = at.in_grid ? ratio : 0.0F;
    float base[2] = {0.0F, 0.0F};
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece, walk.next()) {
      if (walk.across == 0) {
        base[0] = ratio_here * along_y(at.first_row + walk.row, 0);
        base[1] = ratio_here * along_y(at.first_row + walk.row, 1);
      }
      c[piece][0] = c[piece][1] = base[0];
      c[piece][2] = c[piece][3] = base[1];
    }
    const int part = at.in_grid ? at.part : 0;
    add_x(c, part, at.in_grid ? diagonal.high : 0);
    if (diagonal.split && at.in_grid) add_x(c, part, diagonal.low);
  }
};

}  // namespace sape2::kernels::cuda
