#pragma once

#include "kernels/cuda/launch.h"
#include "kernels/cuda/stream_distance.cuh"

/// Attention forward on Hopper: one warpgroup takes 64 queries of a head and walks over all keys.
namespace sape2::kernels::cuda {

template <BiasForm Form>
struct StreamForwardLayout {
  static constexpr bool kDistance = kIsDistance<Form>;
  static constexpr int kColumns = kStreamColumns<Form>;
  static constexpr int kStages = kDistance ? 2 : 3;
  static constexpr int kTileBytes = kColumns * 128;
  static constexpr int kStageBytes = (kDistance ? 4 : 2) * kTileBytes;
  static constexpr int kRowBytes =
      (Form == BiasForm::none ? 1 : 3) * kStreamTile;  // q; x and y, or two panels of y
  static constexpr int kNormBytes = kDistance ? 2 * 2 * kColumns * 4 : 0;
  static constexpr int kBytes =
      kSharedAlignment + kRowBytes + kStages * kStageBytes + kNormBytes + (kStages + 1) * 8;
};

template <class T, BiasForm Form, int Wide>
__global__ void __launch_bounds__(kThreads, 3)
    stream_forward_kernel(const __grid_constant__ StreamForward params) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Layout = StreamForwardLayout<Form>;
  constexpr bool kDirect = Form == BiasForm::direct, kDistance = kIsDistance<Form>;
  constexpr int kColumns = Layout::kColumns, kPieces = kColumns / 8;
  extern __shared__ unsigned char unaligned[];
  const AttentionParams& p = params.base;
  const auto& g = p.geometry;
  const auto& columns = params.columns;
  const StreamBlock block(g, g.padded_tokens / kRowTile);
  const Lane lane;
  const int first_row = block.row_tile * kRowTile, warp_row = threadIdx.x / 32 * 16 + lane.g;
  const int row = first_row + warp_row;  // of this lane: row and row + 8

  unsigned char* const rows = aligned_shared(unaligned);
  unsigned char* const stages = rows + Layout::kRowBytes;
  float* const norms = reinterpret_cast<float*>(stages + Layout::kStages * Layout::kStageBytes);
  CopyBarrier* const arrived = reinterpret_cast<CopyBarrier*>(norms + Layout::kNormBytes / 4);
  CopyBarrier* const rows_arrived = arrived + Layout::kStages;
  const Tile<T> queries{rows, kRowTile, 64};
  const Tile<T> x_rows{rows + kStreamTile, kRowTile, 64};
  const Tile<T> y_rows{rows + (kDirect ? 1 : 2) * kStreamTile, kRowTile, kDirect ? 128 : 64};
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
    const int y_panels = kDirect ? (columns.down + 63) / 64 : 1;
    expect_bytes(rows_arrived, kStreamTile * (1 + (kDistance ? 2 : kDirect ? y_panels : 0)));
    copy_box(rows, params.q, block.tokens(first_row), rows_arrived);
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

  [[maybe_unused]] const StreamDistance<T> distance(p, block.batch_head, row, norms);
  if constexpr (kDistance) {
    distance.note_norms(0, distance.column_norm(0));
    __syncthreads();
  }

  const float scale = p.scale * kLog2E;
  const float bias_factor = Form == BiasForm::none ? 0.0F
                                                   : per_head(p.gain, block.head, 1.0F) *
                                                         (p.inside ? p.scale : 1.0F) * kLog2E;
  [[maybe_unused]] StreamDirect<T, Wide, true> direct(p, columns, block.batch_head, row, y_rows,
                                                      bias_factor, nullptr);
  float maximum[2] = {-INFINITY, -INFINITY}, sum[2] = {0.0F, 0.0F};
  float out[8][4] = {};
  wait_for_boxes(rows_arrived, 0);
  for (int tile = 0; tile < columns.tiles; ++tile) {
    const int stage = tile % Layout::kStages;
    const auto at = columns.place(tile);
    [[maybe_unused]] float next_norm = 0.0F;
    if constexpr (kDistance)
      if (tile + 1 < columns.tiles) next_norm = distance.column_norm(tile + 1);
    wait_for_boxes(arrived + stage, tile / Layout::kStages);

    float logits[kPieces][4];
    [[maybe_unused]] float square[2][kDistance ? kPieces : 1][4];
    begin_products();
    start_row_product(logits, queries, tile_of(stage, 0));
    if constexpr (kDistance) {
      start_row_product(square[0], x_rows, tile_of(stage, 2));
      start_row_product(square[1], y_rows, tile_of(stage, 3));
    }
    if constexpr (kDirect)
      if (at.in_grid && at.first_row == 0) direct.begin_part(at.part);
    end_products();
    hold(logits);

    constexpr float kNoShift[2] = {0.0F, 0.0F};
    if (kDirect && at.in_grid) {
      if constexpr (kDirect) direct.add(logits, at.first_row, scale, kNoShift);
    } else {
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece)
#pragma unroll
        for (int e = 0; e < 4; ++e) logits[piece][e] *= scale;
    }
    if constexpr (kDistance) distance.add(logits, square, tile, row, bias_factor);
    if (!columns.full(at, kColumns)) mask_columns(logits, columns, at, -INFINITY);

#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float top = maximum[half];
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece)
        top = fmaxf(top, fmaxf(logits[piece][2 * half], logits[piece][2 * half + 1]));
      top = row_max(top);
      // A row without any finite logit so far has no maximum to subtract.
      const float shift = top == -INFINITY ? 0.0F : top;
      const float rescale = power_of_2(maximum[half] - shift);
      maximum[half] = top;
      sum[half] *= rescale;
#pragma unroll
      for (int piece = 0; piece < 8; ++piece) {
        out[piece][2 * half] *= rescale;
        out[piece][2 * half + 1] *= rescale;
      }
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece)
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) {
          logits[piece][e] = power_of_2(logits[piece][e] - shift);
          sum[half] += logits[piece][e];
        }
    }
    FragmentA<T> weights[kPieces / 2];
#pragma unroll
    for (int k = 0; k < kPieces / 2; ++k) weights[k] = as_a<T>(logits[2 * k], logits[2 * k + 1]);
    hold(out);
    begin_products();
    start_column_product<T>(out, weights, tile_of(stage, 1));
    end_products();
    hold(out);
    if constexpr (kDistance) distance.note_norms(tile + 1, next_norm);
    __syncthreads();
    if (threadIdx.x == 0 && tile + Layout::kStages < columns.tiles)
      load_tile(tile + Layout::kStages);
  }

  const auto out_head = head_of<T>(p.out, block.image, block.head);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int token = row + 8 * half;
    const float whole = row_sum(sum[half]);
    if (token >= g.tokens) continue;
    if (lane.t == 0 && p.softmax != nullptr)
      p.softmax[block.batch_head * g.tokens + token] = {maximum[half] * kLn2, whole};
    store_row(out_head.row(token), out, half, 1.0F / whole, g.head_size, g.aligned);
  }
#endif
}

}  // namespace sape2::kernels::cuda
