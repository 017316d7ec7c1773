#pragma once

#include "kernels/cuda/stream_direct.cuh"

/// The way back through the direct form's bias, in the queries' pass.
namespace sape2::kernels::cuda {

/// Gradient of the queries' vectors: sums of the logits' gradients over grid columns and rows.
template <class T, int Wide>
struct StreamDirectGradient {
  static constexpr int kPieces = kTilePieces<Wide>, kStored = Wide > 0 ? Wide : kPieces;
  static constexpr int kRows = RowsY<T, Wide>::kRows;
  const BackwardParams& p;
  const StreamColumns& columns;
  std::int64_t token;  // of this lane's first row
  float factor;        // from logit to bias
  std::uint32_t one;   // 1 on a diagonal
  float sum_x[kStored][4];
  float with_bias = 0.0F;
  T* dy;  // of this lane's first row

  __device__ StreamDirectGradient(const BackwardParams& params, const StreamColumns& all,
                                  std::int64_t row, float f)
      : p(params),
        columns(all),
        token(row),
        factor(f),
        one(on_diagonal<T>(1.0F)),
        dy(static_cast<T*>(params.dy) + row * params.forward.vectors.width_y) {
    clear_x();
  }
  __device__ void clear_x() {
#pragma unroll
    for (int piece = 0; piece < kStored; ++piece)
#pragma unroll
      for (int e = 0; e < 4; ++e) sum_x[piece][e] = 0.0F;
  }
  /// Adds a tile of the grid; columns without a token must have gradient 0.
  __device__ void add(const FragmentA<T> (&gradient)[kPieces / 2], const RowsY<T, Wide>& y,
                      const StreamColumns::Place& at) {
    const Lane lane;
    const std::uint32_t ones = pack<T>(1.0F, 1.0F);
    PieceWalk<Wide> walk(columns);
    // Column g of this product's result is grid row g of the tile.
    float sum_y[4] = {0.0F, 0.0F, 0.0F, 0.0F};
#pragma unroll
    for (int k = 0; k < kPieces / 2; ++k) {
      FragmentB<T> rows;
#pragma unroll
      for (int i = 0; i < 2; ++i, walk.next()) {
        multiply_add_eight<T>(sum_x[(2 * k + i) % kStored], gradient[k].r[2 * i],
                              gradient[k].r[2 * i + 1], one);
        rows.r[i] = lane.g == walk.row ? ones : 0;
      }
      multiply_add<T>(sum_y, gradient[k], rows);
    }
    // Two grid rows a lane, of the lanes that have any.
    const int here = kRows > 0 ? kRows : columns.rows_per_tile;
    const int first = at.first_row + 2 * lane.t;
    if (2 * lane.t < here && first < columns.down) {
#pragma unroll
      for (int half = 0; half < 2; ++half)
        add_y(sum_y[2 * half], sum_y[2 * half + 1], y, half, at.part, first, here);
    }
    __syncwarp();
  }
  /// Writes what a part of the grid's columns has summed up.
  __device__ void end_part(int part) {
    const Lane lane;
    const int wide = PieceWalk<Wide>(columns).wide;
#pragma unroll
    for (int piece = 0; piece < kStored; ++piece) {
      // Pieces that lie below one another in the tile stand for the same grid columns.
#pragma unroll
      for (int below = piece + 1; below < kStored; ++below) {
        const float same = (below - piece) % wide == 0 ? 1.0F : 0.0F;
#pragma unroll
        for (int e = 0; e < 4; ++e) sum_x[piece][e] = fmaf(same, sum_x[below][e], sum_x[piece][e]);
      }
      if (piece >= wide) break;
      const int column = part * columns.part_width + piece * 8 + 2 * lane.t;
      if (column >= columns.across) continue;
#pragma unroll
      for (int half = 0; half < 2; ++half)
        write_x(sum_x[piece][2 * half], sum_x[piece][2 * half + 1], half, column);
    }
    clear_x();
  }

 private:
  /// Two neighbouring grid columns of one of the lane's rows. There may be no second one; its
  /// gradient is then 0, and its place among the padding.
  __device__ void write_x(float sum, float next, int half, int column) {
    const std::int64_t place = (token + 8 * half) * p.forward.vectors.width_x + column;
    if (p.dgain != nullptr) {
      const T* const x = static_cast<const T*>(p.forward.vectors.x) + place;
      with_bias = fmaf(sum, widen(x[0]), with_bias);
      if (column + 1 < columns.across) with_bias = fmaf(next, widen(x[1]), with_bias);
    }
    *reinterpret_cast<std::uint32_t*>(static_cast<T*>(p.dx) + place) =
        pack<T>(factor * sum, factor * next);
  }
  /// Two neighbouring grid rows of one of the lane's rows. There may be no second one here either.
  __device__ void add_y(float sum, float next, const RowsY<T, Wide>& y, int half, int part,
                        int first, int here) {
    T* const to = dy + half * 8 * p.forward.vectors.width_y + first;
    if (p.dgain != nullptr) {
      const std::uint32_t own = y.at(first) + half * 1024;
      with_bias = fmaf(sum, load_shared_number<T>(own), with_bias);
      if (here > 1 && first + 1 < columns.down)
        with_bias = fmaf(next, load_shared_number<T>(own + 2), with_bias);
    }
    if (here > 1) {
      auto& pair = *reinterpret_cast<std::uint32_t*>(to);
      const float2 before = part == 0 ? make_float2(0.0F, 0.0F) : unpack<T>(pair);
      pair = pack<T>(fmaf(factor, sum, before.x), fmaf(factor, next, before.y));
    } else {
      *to = narrow<T>(fmaf(factor, sum, part == 0 ? 0.0F : widen(*to)));
    }
  }
};

}  // namespace sape2::kernels::cuda
