#pragma once

#include "kernels/cuda/stream_pairs_block.cuh"

namespace sape2::kernels::cuda {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/// The warpgroup that gathers every gradient of the block's tokens, by products alone, and brings
/// in the next tiles. The gradient of vectors, Σ_n ω_n (u − u_n), is u·Σω − ω·U with the same
/// rounded ω in both terms. `Steps`: sixteens of a vector's entries.
template <class T, int Steps>
struct StreamPairSums {
  using Layout = StreamPairsLayout;
  static constexpr int kVectorPieces = 2 * Steps;

  const StreamPairs<T>& pairs;
  float dq[8][4] = {}, dk[8][4] = {}, dv[8][4] = {};
  float dx[kVectorPieces][4] = {}, dy[kVectorPieces][4] = {};

  __device__ void run() {
    for (int tile = 0; tile < pairs.tiles; ++tile) {
      pairs.await_tile(tile);
      add(dq, tile, PairItem::query_gradients, Layout::k);
      add(dv, tile, PairItem::key_weights, Layout::dout);
      add(dk, tile, PairItem::key_gradients, Layout::q);
      add(dx, tile, PairItem::omega_x, Layout::x);
      add(dy, tile, PairItem::omega_y, Layout::y);
      wait_for_products<0>();
      pairs.empty(pairs.number(tile, PairItem::omega_y));
      pairs.release(tile);
    }
    hold(dq);
    hold(dk);
    hold(dv);
    hold(dx);
    hold(dy);
    store(pairs.params.base.dq, dq, pairs.p.scale);
    store(pairs.params.base.dk, dk, pairs.p.scale);
    store(pairs.params.base.dv, dv, 1.0F);
    pairs.meet();
    store_vectors(pairs.params.base.dx, dx, 0);
    store_vectors(pairs.params.base.dy, dy, 1);
  }

  /// Adds an item times a part of its tile; empties the slot of the item before it.
  template <int Pieces>
  __device__ void add(float (&sum)[Pieces][4], int tile, PairItem item, int part) const {
    const int n = pairs.number(tile, item);
    const std::uint64_t a = pairs.await_item(n), b = pairs.other_matrix(tile, part);
    begin_products();
#pragma unroll
    for (int k = 0; k < kPairColumns / 16; ++k)
      shared_column_product<T>(sum, a + 2 * k, b + 128 * k);
    commit_products();
    wait_for_products<1>();
    if (item != PairItem::query_gradients) pairs.empty(n - 1);
  }

  __device__ void store(const View& view, const float (&c)[8][4], float by) const {
    if (view.data == nullptr) return;
    const auto& g = pairs.g;
    const auto to = head_of<T>(view, pairs.block.image, pairs.block.head);
#pragma unroll
    for (int half = 0; half < 2; ++half)
      if (pairs.row + 8 * half < g.tokens)
        store_row(to.row(pairs.row + 8 * half), c, half, by, g.head_size, g.aligned);
  }
  __device__ void store_vectors(void* gradients, const float (&c)[kVectorPieces][4],
                                int axis) const {
    const Lane lane;
    const auto& vectors = pairs.p.vectors;
    const int width = axis ? vectors.width_y : vectors.width_x;
    const Tile<T> rows = pairs.own(axis ? Layout::y : Layout::x);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = pairs.row - pairs.first_row + 8 * half;
      const float whole = pairs.omega_sums(0, axis)[row] + pairs.omega_sums(1, axis)[row];
      float* const to =
          static_cast<float*>(gradients) +
          (pairs.block.batch_head * pairs.g.padded_tokens + pairs.first_row + row) * width;
#pragma unroll
      for (int piece = 0; piece < kVectorPieces; ++piece) {
        const int entry = piece * 8 + 2 * lane.t;
        if (entry >= width) break;
        *reinterpret_cast<float2*>(to + entry) = make_float2(
            pairs.factor * (whole * widen(rows.at(row, entry)) - c[piece][2 * half]),
            pairs.factor * (whole * widen(rows.at(row, entry + 1)) - c[piece][2 * half + 1]));
      }
    }
  }
};

#endif

}  // namespace sape2::kernels::cuda
