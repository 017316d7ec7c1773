#pragma once

#include "kernels/cuda/block_sum.cuh"
#include "kernels/cuda/rows_delta.cuh"
#include "kernels/cuda/stream_tiles.cuh"

/// Attention backward on Hopper, queries along rows: one warpgroup takes 64 queries, walks over all
/// keys and gathers dq, the vectors' gradients and dgain. No bias, or the direct form.
namespace sape2::kernels::cuda {

template <BiasForm Form>
struct StreamQueriesLayout {
  static constexpr bool kDistance = false, kDirect = Form == BiasForm::direct;
  static constexpr int kColumns = kStreamColumns<Form>;
  static constexpr int kStages = 2;
  static constexpr int kTileBytes = kColumns * 128;
  static constexpr int kStageBytes = 2 * kTileBytes, kNoteBytes = 0;
  static constexpr int kRowBytes = 2 * kStreamTile;  // q, dout
  static constexpr int kScratch = kRowTile * 4;
  // The direct form's x as numbers, and one or two panels of y.
  static constexpr int kDirectX = kDirect ? kRowTile * 64 * 4 : 0;
  __host__ __device__ static int y_panels(const StreamColumns& columns) {
    return kDirect ? (columns.down + 63) / 64 : 0;
  }
  __host__ __device__ static int bytes(const StreamColumns& columns) {
    return kSharedAlignment + kRowBytes + kStages * kStageBytes + kDirectX +
           y_panels(columns) * kStreamTile + kScratch + (kStages + 1) * 8;
  }
};

/// Whether a lane's x stay in registers: of grid rows of 32, they are few.
template <int Wide>
inline constexpr bool kKeepsX = Wide > 0 && Wide <= 4;

/// Gradient of the queries' vectors: sums of the logits' gradients over grid columns and rows.
template <class T, int Wide>
struct StreamDirectGradient {
  using Direct = StreamDirect<T, Wide, kKeepsX<Wide>>;
  static constexpr int kPieces = 8, kStored = Direct::kStored;
  float sum_x[kStored][4];
  T* dx[2];  // of this lane's rows
  T* dy[2];
  float factor;  // from logit to bias
  float with_bias = 0.0F;

  __device__ StreamDirectGradient(const BackwardParams& p, std::int64_t batch_head, int row,
                                  float f)
      : factor(f) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int64_t token = batch_head * p.forward.geometry.padded_tokens + row + 8 * half;
      dx[half] = static_cast<T*>(p.dx) + token * p.forward.vectors.width_x;
      dy[half] = static_cast<T*>(p.dy) + token * p.forward.vectors.width_y;
    }
  }
  __device__ void begin_part() {
#pragma unroll
    for (int piece = 0; piece < kStored; ++piece)
#pragma unroll
      for (int e = 0; e < 4; ++e) sum_x[piece][e] = 0.0F;
  }
  /// Adds a tile of the grid; columns without a token must have gradient 0.
  __device__ void add(const float (&gradient)[kPieces][4], const Direct& bias, int part,
                      int first_row) {
    const Lane lane;
    PieceWalk<Wide> walk(bias.columns);
    float sum_y[2] = {0.0F, 0.0F};
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        sum_x[piece % kStored][e] += gradient[piece][e];
        sum_y[e / 2] += gradient[piece][e];
      }
      const int grid_row = first_row + walk.row;
      walk.next();
      if (walk.across != 0) continue;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float sum = row_sum(sum_y[half]);
        sum_y[half] = 0.0F;
        if (lane.t == 0 && grid_row < bias.columns.down) {
          with_bias = fmaf(sum, bias.along_y(grid_row, half), with_bias);
          T& to = dy[half][grid_row];
          to = narrow<T>(fmaf(factor, sum, part == 0 ? 0.0F : widen(to)));
        }
      }
    }
  }
  /// Writes what a part of the grid's columns has summed up.
  __device__ void end_part(const Direct& bias, int part) {
    const Lane lane;
    const auto& columns = bias.columns;
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
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int column = part * columns.part_width + piece * 8 + 2 * lane.t + e % 2;
        if (column >= columns.across) continue;
        with_bias = fmaf(sum_x[piece][e], widen(bias.x[e / 2][column]), with_bias);
        dx[e / 2][column] = narrow<T>(factor * sum_x[piece][e]);
      }
    }
  }
};

template <class T, BiasForm Form, int Wide>
__global__ void __launch_bounds__(kThreads, 3)
    stream_queries_kernel(const __grid_constant__ StreamBackward params) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Layout = StreamQueriesLayout<Form>;
  static_assert(!kIsDistance<Form>);
  constexpr bool kDirect = Form == BiasForm::direct;
  constexpr int kColumns = Layout::kColumns, kPieces = kColumns / 8;
  extern __shared__ unsigned char unaligned[];
  const AttentionParams& p = params.base.forward;
  const auto& g = p.geometry;
  const auto& columns = params.columns;
  const StreamBlock block(g, g.padded_tokens / kRowTile);
  const Lane lane;
  const int first_row = block.row_tile * kRowTile, warp_row = threadIdx.x / 32 * 16 + lane.g;
  const int row = first_row + warp_row;

  unsigned char* const rows = aligned_shared(unaligned);
  unsigned char* const stages = rows + Layout::kRowBytes;
  unsigned char* const direct_x = stages + Layout::kStages * Layout::kStageBytes;
  unsigned char* const direct_y = direct_x + Layout::kDirectX;
  const int y_panels = Layout::y_panels(columns);
  float* const scratch = reinterpret_cast<float*>(direct_y + y_panels * kStreamTile);
  CopyBarrier* const arrived = reinterpret_cast<CopyBarrier*>(scratch + Layout::kScratch / 4);
  CopyBarrier* const rows_arrived = arrived + Layout::kStages;
  const Tile<T> queries{rows, kRowTile, 64}, douts{rows + kStreamTile, kRowTile, 64};
  const Tile<T> y_rows{direct_y, kRowTile, 128};
  const KeyRing<T, Layout, StreamBackward> keys{params, block, stages, arrived};
  if (columns.part_width * columns.rows_per_tile < kColumns)
    clear_shared(stages, Layout::kStages * Layout::kStageBytes);
  if (threadIdx.x == 0)
    for (int i = 0; i <= Layout::kStages; ++i) prepare_barrier(arrived + i);
  publish_to_copy_engine();
  __syncthreads();
  if (threadIdx.x == 0) {
    expect_bytes(rows_arrived, Layout::kRowBytes + y_panels * kStreamTile);
    copy_box(queries.data, params.q, block.tokens(first_row), rows_arrived);
    copy_box(douts.data, params.dout, block.tokens(first_row), rows_arrived);
    if constexpr (kDirect) {
      for (int panel = 0; panel < y_panels; ++panel)
        copy_box(y_rows.data + panel * kStreamTile, params.y, block.vectors(first_row, panel * 64),
                 rows_arrived);
    }
    keys.load_first();
  }

  // dout · out of the rows, for this pass and the next.
  rows_delta<T, 64>(params.base, block.image, block.head, first_row, scratch);
  __syncthreads();
  float shift[2] = {INFINITY, INFINITY}, delta[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int token = row + 8 * half;
    delta[half] = scratch[warp_row + 8 * half];
    if (token < g.tokens) {
      const SoftmaxRow softmax = p.softmax[block.batch_head * g.tokens + token];
      shift[half] = softmax.maximum * kLog2E + log_of_2(softmax.sum);
    }
    if (lane.t == 0)
      reinterpret_cast<float2*>(params.base.delta)[block.batch_head * g.padded_tokens + token] =
          make_float2(shift[half], delta[half]);
  }
  __syncthreads();

  const float scale = p.scale * kLog2E;
  const float factor = Form == BiasForm::none
                           ? 0.0F
                           : per_head(p.gain, block.head, 1.0F) * (p.inside ? p.scale : 1.0F);
  [[maybe_unused]] StreamDirect<T, Wide, kKeepsX<Wide>> direct(p, columns, block.batch_head, row,
                                                               y_rows, factor * kLog2E,
                                                               reinterpret_cast<float*>(direct_x));
  [[maybe_unused]] StreamDirectGradient<T, Wide> direct_gradient(params.base, block.batch_head, row,
                                                                 factor);
  ColumnMask<kPieces> mask;
  float dq[8][4] = {};
  wait_for_boxes(rows_arrived, 0);
  for (int tile = 0; tile < columns.tiles; ++tile) {
    const auto at = columns.place(tile);
    keys.await(tile);

    float weight[kPieces][4], gradient[kPieces][4];
    begin_products();
    start_row_product(weight, queries, keys.tile(tile, 0));
    commit_products();
    start_row_product(gradient, douts, keys.tile(tile, 1));
    commit_products();
    if constexpr (kDirect)
      if (at.in_grid && at.first_row == 0) {
        direct.begin_part(at.part);
        direct_gradient.begin_part();
      }
    wait_for_products<1>();
    hold(weight);

    if (kDirect && at.in_grid) {
      if constexpr (kDirect) direct.add(weight, at.first_row, scale, shift);
    } else {
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece)
#pragma unroll
        for (int e = 0; e < 4; ++e) weight[piece][e] = fmaf(weight[piece][e], scale, -shift[e / 2]);
    }
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece)
#pragma unroll
      for (int e = 0; e < 4; ++e) weight[piece][e] = power_of_2(weight[piece][e]);
    mask.apply(weight, columns, at, 0.0F);

    wait_for_products<0>();
    hold(gradient);
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        gradient[piece][e] = weight[piece][e] * (gradient[piece][e] - delta[e / 2]);
    FragmentA<T> fragments[kPieces / 2];
#pragma unroll
    for (int k = 0; k < kPieces / 2; ++k)
      fragments[k] = as_a<T>(gradient[2 * k], gradient[2 * k + 1]);
    hold(dq);
    begin_products();
    start_column_product<T>(dq, fragments, keys.tile(tile, 0));
    commit_products();
    if constexpr (kDirect)
      if (at.in_grid) {
        direct_gradient.add(gradient, direct, at.part, at.first_row);
        if (tile + 1 == (at.part + 1) * columns.tiles_per_part)
          direct_gradient.end_part(direct, at.part);
      }
    wait_for_products<0>();
    hold(dq);
    keys.release(tile);
  }

  const auto to = head_of<T>(params.base.dq, block.image, block.head);
#pragma unroll
  for (int half = 0; half < 2; ++half)
    if (row + 8 * half < g.tokens && to.data != nullptr)
      store_row(to.row(row + 8 * half), dq, half, p.scale, g.head_size, g.aligned);
  if constexpr (kDirect) {
    if (params.base.dgain != nullptr) {
      const float sum = block_sum(direct_gradient.with_bias, scratch);
      if (threadIdx.x == 0) params.base.dgain[blockIdx.x] = sum * (p.inside ? p.scale : 1.0F);
    }
  }
#endif
}

}  // namespace sape2::kernels::cuda
