#pragma once

#include "kernels/cuda/block_sum.cuh"
#include "kernels/cuda/rows_delta.cuh"
#include "kernels/cuda/stream_distance.cuh"

/// Attention backward on Hopper, queries along rows: one warpgroup takes 64 queries, walks over all
/// keys and gathers dq, the vectors' gradients and dgain.
namespace sape2::kernels::cuda {

template <BiasForm Form>
struct StreamQueriesLayout {
  static constexpr bool kDistance = kIsDistance<Form>;
  static constexpr int kColumns = kStreamColumns<Form>;
  static constexpr int kStages = kDistance ? 3 : 2;
  static constexpr int kTileBytes = kColumns * 128;
  static constexpr int kStageBytes = (kDistance ? 4 : 2) * kTileBytes;
  static constexpr int kRowBytes = (kDistance ? 4 : 2) * kStreamTile;  // q, dout; x and y
  static constexpr int kScratch = 2 * kRowTile * 4;
  // The direct form's x as numbers, and one or two panels of y.
  static constexpr bool kDirect = Form == BiasForm::direct;
  static constexpr int kDirectX = kDirect ? kRowTile * 64 * 4 : 0;
  __host__ __device__ static int y_panels(const StreamColumns& columns) {
    return kDirect ? (columns.down + 63) / 64 : 0;
  }
  __host__ __device__ static int bytes(const StreamColumns& columns) {
    return kSharedAlignment + kRowBytes + kStages * kStageBytes + kDirectX +
           y_panels(columns) * kStreamTile + kScratch + (kStages + 1) * 8;
  }
};

/// Gradient of the queries' vectors: sums of the logits' gradients over grid columns and rows.
template <class T, int Wide>
struct StreamDirectGradient {
  using Direct = StreamDirect<T, Wide, false>;
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
__global__ void __launch_bounds__(kThreads, kIsDistance<Form> ? 2 : 3)
    stream_queries_kernel(const __grid_constant__ StreamBackward params) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Layout = StreamQueriesLayout<Form>;
  constexpr bool kDirect = Form == BiasForm::direct, kDistance = kIsDistance<Form>;
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
  const Tile<T> x_rows{rows + 2 * kStreamTile, kRowTile, 64};
  const Tile<T> y_rows{kDirect ? direct_y : rows + 3 * kStreamTile, kRowTile, kDirect ? 128 : 64};
  const auto tile_of = [&](int stage, int index) {
    return Tile<T>{stages + stage * Layout::kStageBytes + index * Layout::kTileBytes, kColumns, 64};
  };

  const auto load_tile = [&](int tile) {
    const int stage = tile % Layout::kStages;
    const auto at = columns.place(tile);
    const auto box = keys_box(block, columns, at, kColumns);
    CopyBarrier* const barrier = arrived + stage;
    expect_bytes(barrier, 2 * keys_box_bytes(columns, at, kColumns) +
                              (kDistance ? 2 * Layout::kTileBytes : 0));
    copy_box(tile_of(stage, 0).data, at.in_grid ? params.k : params.k_prefix, box, barrier);
    copy_box(tile_of(stage, 1).data, at.in_grid ? params.v : params.v_prefix, box, barrier);
    if constexpr (kDistance) {
      copy_box(tile_of(stage, 2).data, params.x_columns, block.vectors(tile * kColumns), barrier);
      copy_box(tile_of(stage, 3).data, params.y_columns, block.vectors(tile * kColumns), barrier);
    }
  };
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
    if constexpr (kDistance) {
      copy_box(x_rows.data, params.x, block.vectors(first_row), rows_arrived);
      copy_box(y_rows.data, params.y, block.vectors(first_row), rows_arrived);
    } else if constexpr (kDirect) {
      for (int panel = 0; panel < y_panels; ++panel)
        copy_box(y_rows.data + panel * kStreamTile, params.y, block.vectors(first_row, panel * 64),
                 rows_arrived);
    }
    for (int tile = 0; tile < min(Layout::kStages, columns.tiles); ++tile) load_tile(tile);
  }

  // dout · out of the rows, for this pass and the next.
  rows_delta<T, 64>(params.base, block.image, block.head, first_row, scratch);
  __syncthreads();
  float shift[2] = {INFINITY, INFINITY}, delta[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int token = row + 8 * half;
    delta[half] = scratch[warp_row + 8 * half];
    if (token >= g.tokens) continue;
    const std::int64_t place = block.batch_head * g.tokens + token;
    shift[half] = p.softmax[place].maximum * kLog2E + log_of_2(p.softmax[place].sum);
    if (lane.t == 0)
      reinterpret_cast<float2*>(params.base.delta)[place] = make_float2(shift[half], delta[half]);
  }
  __syncthreads();

  const float scale = p.scale * kLog2E;
  const float factor = Form == BiasForm::none
                           ? 0.0F
                           : per_head(p.gain, block.head, 1.0F) * (p.inside ? p.scale : 1.0F);
  [[maybe_unused]] StreamDirect<T, Wide, false> direct(p, columns, block.batch_head, row, y_rows,
                                                       factor * kLog2E,
                                                       reinterpret_cast<float*>(direct_x));
  [[maybe_unused]] StreamDirectGradient<T, Wide> direct_gradient(params.base, block.batch_head, row,
                                                                 factor);
  [[maybe_unused]] StreamDistance<T> distance(p, block.batch_head, row, scratch);
  [[maybe_unused]] StreamDistanceGradient<T> vector_gradient[kDistance ? 2 : 1];
  if constexpr (kDistance) {
    distance.note_norms(0, distance.column_norm(0));
    __syncthreads();
  }
  float with_bias = 0.0F;
  float dq[8][4] = {};
  wait_for_boxes(rows_arrived, 0);
  for (int tile = 0; tile < columns.tiles; ++tile) {
    const int stage = tile % Layout::kStages;
    const auto at = columns.place(tile);
    [[maybe_unused]] float next_norm = 0.0F;
    if constexpr (kDistance)
      if (tile + 1 < columns.tiles) next_norm = distance.column_norm(tile + 1);
    wait_for_boxes(arrived + stage, tile / Layout::kStages);

    float weight[kPieces][4], gradient[kPieces][4];
    [[maybe_unused]] float inverse[2][kDistance ? kPieces : 1][4];
    begin_products();
    start_row_product(weight, queries, tile_of(stage, 0));
    if constexpr (kDistance) {
      start_row_product(inverse[0], x_rows, tile_of(stage, 2));
      start_row_product(inverse[1], y_rows, tile_of(stage, 3));
    }
    commit_products();
    start_row_product(gradient, douts, tile_of(stage, 1));
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
    [[maybe_unused]] float length[kDistance ? kPieces : 1][4];
    if constexpr (kDistance) {
      distance.lengths(length, inverse, tile, row);
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          weight[piece][e] = fmaf(length[piece][e], factor * kLog2E, weight[piece][e]);
    }
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece)
#pragma unroll
      for (int e = 0; e < 4; ++e) weight[piece][e] = power_of_2(weight[piece][e]);
    if (!columns.full(at, kColumns)) mask_columns(weight, columns, at, 0.0F);

    wait_for_products<0>();
    hold(gradient);
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        gradient[piece][e] = weight[piece][e] * (gradient[piece][e] - delta[e / 2]);
        if constexpr (kDistance) with_bias = fmaf(gradient[piece][e], length[piece][e], with_bias);
      }
    FragmentA<T> fragments[kPieces / 2];
#pragma unroll
    for (int k = 0; k < kPieces / 2; ++k)
      fragments[k] = as_a<T>(gradient[2 * k], gradient[2 * k + 1]);
    hold(dq);
    begin_products();
    start_column_product<T>(dq, fragments, tile_of(stage, 0));
    if constexpr (kDistance) {
      vector_gradient[0].start(inverse[0], gradient, factor, tile_of(stage, 2));
      vector_gradient[1].start(inverse[1], gradient, factor, tile_of(stage, 3));
    }
    commit_products();
    if constexpr (kDirect)
      if (at.in_grid) {
        direct_gradient.add(gradient, direct, at.part, at.first_row);
        if (tile + 1 == (at.part + 1) * columns.tiles_per_part)
          direct_gradient.end_part(direct, at.part);
      }
    wait_for_products<0>();
    hold(dq);
    if constexpr (kDistance) {
      hold(vector_gradient[0].sum);
      hold(vector_gradient[1].sum);
      distance.note_norms(tile + 1, next_norm);
    }
    __syncthreads();
    if (threadIdx.x == 0 && tile + Layout::kStages < columns.tiles)
      load_tile(tile + Layout::kStages);
  }

  if constexpr (kDistance) {
    vector_gradient[0].template finish<false>(
        x_rows,
        static_cast<float*>(params.base.dx) +
            (block.batch_head * g.padded_tokens + row) * p.vectors.width_x,
        p.vectors.width_x);
    vector_gradient[1].template finish<false>(
        y_rows,
        static_cast<float*>(params.base.dy) +
            (block.batch_head * g.padded_tokens + row) * p.vectors.width_y,
        p.vectors.width_y);
  }
  const auto to = head_of<T>(params.base.dq, block.image, block.head);
#pragma unroll
  for (int half = 0; half < 2; ++half)
    if (row + 8 * half < g.tokens && to.data != nullptr)
      store_row(to.row(row + 8 * half), dq, half, p.scale, g.head_size, g.aligned);
  if constexpr (Form != BiasForm::none) {
    if (params.base.dgain != nullptr) {
      if constexpr (kDirect) with_bias = direct_gradient.with_bias;
      const float sum = block_sum(with_bias, scratch);
      if (threadIdx.x == 0) params.base.dgain[blockIdx.x] = sum * (p.inside ? p.scale : 1.0F);
    }
  }
#endif
}

}  // namespace sape2::kernels::cuda
