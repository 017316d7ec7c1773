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
  static constexpr int kNoteBytes = kDistance ? 2 * kColumns * 4 : 0;
  static constexpr int kBytes =
      kSharedAlignment + kRowBytes + kStages * (kStageBytes + kNoteBytes) + (kStages + 1) * 8;
};

template <class T, BiasForm Form, int Wide>
__global__ void __launch_bounds__(kThreads, 3)
    stream_forward_kernel(const __grid_constant__ StreamForward params) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Layout = StreamForwardLayout<Form>;
  constexpr bool kDirect = Form == BiasForm::direct, kDistance = kIsDistance<Form>;
  constexpr int kColumns = Layout::kColumns, kPieces = kColumns / 8;
  constexpr int kSteps = Wide == 4 ? 2 : 4;  // sixteens of the vectors' entries
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
  CopyBarrier* const arrived = reinterpret_cast<CopyBarrier*>(
      stages + Layout::kStages * (Layout::kStageBytes + Layout::kNoteBytes));
  CopyBarrier* const rows_arrived = arrived + Layout::kStages;
  const KeyRing<T, Layout, StreamForward> keys{params, block, stages, arrived};
  const Tile<T> queries{rows, kRowTile, 64};
  const Tile<T> x_rows{rows + kStreamTile, kRowTile, 64};
  const Tile<T> y_rows{rows + (kDirect ? 1 : 2) * kStreamTile, kRowTile, kDirect ? 128 : 64};
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
    keys.load_first();
  }

  const float scale = p.scale * kLog2E;
  const float bias_factor = Form == BiasForm::none ? 0.0F
                                                   : per_head(p.gain, block.head, 1.0F) *
                                                         (p.inside ? p.scale : 1.0F) * kLog2E;
  [[maybe_unused]] StreamDirect<T, Wide, true> direct(p, columns, block.batch_head, row, y_rows,
                                                      bias_factor, nullptr);
  [[maybe_unused]] std::conditional_t<kDistance, StreamDistance<kPieces>, int> distance[2];
  if constexpr (kDistance)
    for (int axis = 0; axis < 2; ++axis) distance[axis] = {p, block.batch_head, row, axis};
  ColumnMask<kPieces> mask;
  float maximum[2] = {-INFINITY, -INFINITY}, sum[2] = {0.0F, 0.0F};
  float out[8][4] = {};
  wait_for_boxes(rows_arrived, 0);
  for (int tile = 0; tile < columns.tiles; ++tile) {
    const auto at = columns.place(tile);
    keys.await(tile);

    float logits[kPieces][4];
    [[maybe_unused]] float square[2][kDistance ? kPieces : 1][4];
    begin_products();
    start_row_product(logits, queries, keys.tile(tile, 0));
    if constexpr (kDistance) {
      start_row_product<kSteps>(square[0], x_rows, keys.tile(tile, 2));
      start_row_product<kSteps>(square[1], y_rows, keys.tile(tile, 3));
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
    if constexpr (kDistance) {
      hold(square[0]);
      hold(square[1]);
      distance[0].squares(square[0], keys.norms(tile), row, tile * kColumns);
      distance[1].squares(square[1], keys.norms(tile) + kColumns, row, tile * kColumns);
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          logits[piece][e] =
              fmaf(root_of_distance(square[0][piece][e]) + root_of_distance(square[1][piece][e]),
                   bias_factor, logits[piece][e]);
    }
    mask.apply(logits, columns, at, -INFINITY);

#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float top = maximum[half];
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece)
        top = fmaxf(top, fmaxf(logits[piece][2 * half], logits[piece][2 * half + 1]));
      top = row_max(top);
      // A row without any finite logit so far has no maximum to subtract.
      const float shift = top == -INFINITY ? 0.0F : top;
      // Maxima seldom move once some tiles are done.
      if (__any_sync(0xffffffffu, top != maximum[half])) {
        const float rescale = power_of_2(maximum[half] - shift);
        maximum[half] = top;
        sum[half] *= rescale;
#pragma unroll
        for (int piece = 0; piece < 8; ++piece) {
          out[piece][2 * half] *= rescale;
          out[piece][2 * half + 1] *= rescale;
        }
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
    start_column_product<T>(out, weights, keys.tile(tile, 1));
    end_products();
    hold(out);
    keys.release(tile);
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
