#pragma once

#include "kernels/cuda/launch.h"
#include "kernels/cuda/lazy_softmax.cuh"
#include "kernels/cuda/stream_distance.cuh"

/// Attention forward on Hopper, distance form: one warpgroup takes 64 queries of a head and walks
/// over all keys. A tile of keys and vectors makes room for the next one as soon as its products
/// are done, its values once they are added up: that leaves the copies most of a tile's time, and
/// room for three blocks on a multiprocessor.
namespace sape2::kernels::cuda {

/// Places in shared memory, in bytes from its beginning.
struct StreamDistanceForwardLayout {
  enum Part { q, x, y, kParts };  // of the block's rows; of a tile's columns k stands for q
  enum Barrier { rows, keys, keys_read, values, values_read, kBarriers };
  static constexpr int kRows = 0;
  static constexpr int kKeys = kRows + kParts * kStreamTile;
  static constexpr int kValues = kKeys + kParts * kStreamTile;
  static constexpr int kNorms = kValues + kStreamTile;  // squared lengths of x, behind them of y
  static constexpr int kArrived = kNorms + 2 * kRowTile * 4;
  static constexpr int kBytes = kArrived + kBarriers * 8;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// Aligned for swizzled tiles, so that all places are known to the compiler.
extern __shared__ __align__(kSharedAlignment) unsigned char distance_forward_memory[];

/// `Steps`: sixteens of a vector's entries.
template <class T, int Steps>
struct StreamDistanceForward {
  using Layout = StreamDistanceForwardLayout;
  static constexpr int kColumns = kRowTile, kPieces = kColumns / 8;
  static constexpr float kAlmostZero = 1e-30F;

  const StreamForward& params;
  const AttentionParams& p;
  const Geometry& g;
  StreamBlock block;
  int tiles, first_row, row;  // row and row + 8 are this lane's
  int warp;
  float scale, factor;  // of scores and of distances, times log2(e)
  LazySoftmax softmax;
  float out[8][4] = {};

  __device__ explicit StreamDistanceForward(const StreamForward& all)
      : params(all),
        p(all.base),
        g(p.geometry),
        block(g, g.padded_tokens / kRowTile),
        tiles((g.tokens + kColumns - 1) / kColumns),
        first_row(block.row_tile * kRowTile),
        row(first_row + threadIdx.x / 32 * 16 + Lane().g),
        warp(__shfl_sync(0xffffffffu, threadIdx.x / 32, 0)),
        // Padding is −∞ times the scale, which no 0 may undo.
        scale((p.scale == 0.0F ? kAlmostZero : p.scale) * kLog2E),
        factor(per_head(p.gain, block.head, 1.0F) * (p.inside ? p.scale : 1.0F) * kLog2E) {}

  __device__ static Tile<T> own(int part) {
    return {distance_forward_memory + Layout::kRows + part * kStreamTile, kRowTile, 64};
  }
  __device__ static Tile<T> other(int part) {
    return {distance_forward_memory + Layout::kKeys + part * kStreamTile, kColumns, 64};
  }
  __device__ static Tile<T> values() {
    return {distance_forward_memory + Layout::kValues, kColumns, 64};
  }
  __device__ static float* norms(int axis) {
    return reinterpret_cast<float*>(distance_forward_memory + Layout::kNorms) + axis * kColumns;
  }
  __device__ static CopyBarrier* barrier(int which) {
    return reinterpret_cast<CopyBarrier*>(distance_forward_memory + Layout::kArrived) + which;
  }

  // --------------------------------------------------------------- copies, started by one thread

  __device__ void prepare() const {
    prefetch_maps(params.q, params.k, params.v, params.x, params.y, params.norm_x, params.norm_y);
    for (const int copies : {Layout::rows, Layout::keys, Layout::values})
      prepare_barrier(barrier(copies));
    for (const int reads : {Layout::keys_read, Layout::values_read})
      prepare_barrier(barrier(reads), kWarps);
  }
  __device__ void load_rows() const {
    expect_bytes(barrier(Layout::rows), Layout::kParts * kStreamTile);
    copy_box(own(Layout::x).data, params.x, block.vectors(first_row), barrier(Layout::rows));
    copy_box(own(Layout::y).data, params.y, block.vectors(first_row), barrier(Layout::rows));
    copy_box(own(Layout::q).data, params.q, block.tokens(first_row), barrier(Layout::rows));
  }
  __device__ void load_keys(int tile) const {
    const int first = tile * kColumns;
    CopyBarrier* const to = barrier(Layout::keys);
    expect_bytes(to, Layout::kParts * kStreamTile + 2 * kColumns * 4);
    copy_box(other(Layout::x).data, params.x, block.vectors(first), to);
    copy_box(norms(0), params.norm_x, block.notes(first, 1), to);
    copy_box(other(Layout::y).data, params.y, block.vectors(first), to);
    copy_box(norms(1), params.norm_y, block.notes(first, 1), to);
    copy_box(other(Layout::q).data, params.k, block.tokens(first), to);
  }
  __device__ void load_values(int tile) const {
    expect_bytes(barrier(Layout::values), kStreamTile);
    copy_box(values().data, params.v, block.tokens(tile * kColumns), barrier(Layout::values));
  }
  /// Says that this warp has read a tile's part; once all have, one thread loads the next tile's.
  /// Its whole warp waits: where lanes part, the compiler computes matrices' names lane by lane.
  template <class Load>
  __device__ void when_read(int which, int tile, Load load) const {
    __syncwarp();
    if (is_chosen()) arrive(barrier(which));
    if (warp != 0 || tile + 1 == tiles) return;
    wait_for_boxes(barrier(which), tile);
    if (is_chosen()) load();
  }

  // ------------------------------------------------------------------------------------ tiles

  __device__ void run() {
    const StreamDistance<kPieces> distance[2] = {{p, block.batch_head, row, 0},
                                                 {p, block.batch_head, row, 1}};
    // A tile's values are added up beside the next tile's products; before the first, nothing is.
    FragmentA<T> weights[kPieces / 2] = {};
    wait_for_boxes(barrier(Layout::rows), 0);
    for (int tile = 0; tile < tiles; ++tile) {
      float length[kPieces][4], along_y[kPieces][4], scores[kPieces][4];
      wait_for_boxes(barrier(Layout::values), max(tile - 1, 0));
      wait_for_boxes(barrier(Layout::keys), tile);
      begin_products();
      start_column_product<T>(out, weights, values());
      commit_products();
      start_row_product<Steps>(length, own(Layout::x), other(Layout::x));
      commit_products();
      start_row_product<Steps>(along_y, own(Layout::y), other(Layout::y));
      commit_products();
      wait_for_products<2>();
      hold(out);
      keep(weights);
      begin_products();
      start_row_product(scores, own(Layout::q), other(Layout::q));
      commit_products();
      if (tile > 0) when_read(Layout::values_read, tile - 1, [&] { load_values(tile); });
      wait_for_products<2>();
      hold(length);
      roots(length, distance[0], 0, tile, row);
      wait_for_products<1>();
      hold(along_y);
      roots(along_y, distance[1], 1, tile, row);
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece)
#pragma unroll
        for (int e = 0; e < 4; ++e) length[piece][e] += along_y[piece][e];
      wait_for_products<0>();
      hold(scores);
      when_read(Layout::keys_read, tile, [&] { load_keys(tile + 1); });
      if ((tile + 1) * kColumns > g.tokens) clear_padding(scores, tile);
      float(&weighed)[kPieces][4] = along_y;
      weigh(weighed, scores, length);
      if (softmax.overflows()) {
        follow(scores, length);
        weigh(weighed, scores, length);
      }
      softmax.end_tile();
#pragma unroll
      for (int k = 0; k < kPieces / 2; ++k)
        weights[k] = as_a<T>(weighed[2 * k], weighed[2 * k + 1]);
    }
    wait_for_boxes(barrier(Layout::values), tiles - 1);
    begin_products();
    start_column_product<T>(out, weights, values());
    end_products();
    hold(out);
  }

  /// From products of an axis's vectors to distances.
  __device__ static void roots(float (&c)[kPieces][4], const StreamDistance<kPieces>& distance,
                               int axis, int tile, int row) {
    distance.squares(c, norms(axis), row, tile * kColumns);
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece)
#pragma unroll
      for (int e = 0; e < 4; ++e) c[piece][e] = root_of_distance(c[piece][e]);
  }
  /// Padding has no weight.
  __device__ void clear_padding(float (&scores)[kPieces][4], int tile) const {
    const int first = tile * kColumns + 2 * Lane().t;
    const float lowest = scale > 0.0F ? -INFINITY : INFINITY;
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (first + piece * 8 + e % 2 >= g.tokens) scores[piece][e] = lowest;
  }
  /// A logit, times log2(e), plus `shift`.
  __device__ float logit(float score, float length, float shift) const {
    return fmaf(score, scale, fmaf(length, factor, shift));
  }
  __device__ void weigh(float (&weights)[kPieces][4], const float (&scores)[kPieces][4],
                        const float (&length)[kPieces][4]) {
    softmax.begin_tile();
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        weights[piece][e] =
            softmax.weigh(logit(scores[piece][e], length[piece][e], softmax.shift[e / 2]), e);
  }
  /// Has the softmax go to the greatest logit so far.
  __device__ void follow(const float (&scores)[kPieces][4], const float (&length)[kPieces][4]) {
    float greatest[2] = {-INFINITY, -INFINITY};
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        greatest[e / 2] = fmaxf(greatest[e / 2], logit(scores[piece][e], length[piece][e], 0.0F));
    softmax.move(greatest, out);
  }

  __device__ void store() const {
    const auto to = head_of<T>(p.out, block.image, block.head);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int token = row + 8 * half;
      const float whole = row_sum(softmax.sum[half]);
      if (token >= g.tokens) continue;
      if (Lane().t == 0 && p.softmax != nullptr)
        p.softmax[block.batch_head * g.tokens + token] = {softmax.top[half] * kLn2, whole};
      store_row(to.row(token), out, half, 1.0F / whole, g.head_size, g.aligned);
    }
  }
};

#endif

template <class T, int Steps>
__global__ void __launch_bounds__(kThreads, 3)
    stream_distance_forward_kernel(const __grid_constant__ StreamForward params) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  StreamDistanceForward<T, Steps> forward(params);
  if (threadIdx.x == 0) forward.prepare();
  publish_to_copy_engine();
  __syncthreads();
  if (threadIdx.x == 0) forward.load_values(0);
  wait_for_previous();  // it made the vectors
  if (threadIdx.x == 0) {
    forward.load_rows();
    forward.load_keys(0);
  }
  forward.run();
  let_next_begin();
  forward.store();
#endif
}

}  // namespace sape2::kernels::cuda
