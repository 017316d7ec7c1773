#pragma once

#include "kernels/cuda/stream_pairs_block.cuh"

namespace sape2::kernels::cuda {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/// The warpgroup that gathers every gradient of the block's tokens, by products alone, and brings
/// in the next tiles. The gradient of vectors, Σ_n ω_n (u − u_n), is u·Σω − ω·U with the same
/// rounded ω in both terms, Σω by a product with ones. `Steps`: sixteens of a vector's entries.
template <class T, int Steps>
struct StreamPairSums {
  using Layout = StreamPairsLayout<Steps>;
  static constexpr int kVectorPieces = 2 * Steps;

  const StreamPairs<T, Steps>& pairs;
  float dq[8][4] = {}, dk[8][4] = {}, dv[8][4] = {};
  float dx[kVectorPieces][4] = {}, dy[kVectorPieces][4] = {};
  float omegas_x[1][4] = {}, omegas_y[1][4] = {};  // Σω of row and row + 8, each twice

  __device__ void run() {
    for (int tile = 0; tile < pairs.tiles; ++tile) {
      pairs.await_first(tile);
      pairs.await_rest(tile);
      add(dq, tile, PairItem::query_gradients, Layout::k);
      add(dv, tile, PairItem::key_weights, Layout::dout);
      add(dk, tile, PairItem::key_gradients, Layout::q);
      add(dx, tile, PairItem::omega_x, Layout::x, omegas_x);
      add(dy, tile, PairItem::omega_y, Layout::y, omegas_y);
      wait_for_products<0>();
      pairs.empty(tile, PairItem::omega_y);
      pairs.release(tile);
    }
    hold(dq);
    hold(dk);
    hold(dv);
    hold(dx);
    hold(dy);
    hold(omegas_x);
    hold(omegas_y);
    store(pairs.params.base.dq, dq, pairs.p.scale);
    store(pairs.params.base.dk, dk, pairs.p.scale);
    store(pairs.params.base.dv, dv, 1.0F);
    store_vectors(pairs.params.base.dx, dx, omegas_x, 0);
    store_vectors(pairs.params.base.dy, dy, omegas_y, 1);
  }

  /// Adds an item times a part of its tile, and its rows' sums if they are asked for; empties the
  /// slot of the item before it.
  template <int Pieces, class... Rows>
  __device__ void add(float (&sum)[Pieces][4], int tile, PairItem item, int part,
                      Rows&... row_sums) const {
    const std::uint64_t a = pairs.await_item(tile, item), b = pairs.other_matrix(tile, part);
    const int sixteen_rows = part < Layout::k ? Layout::kVectorRow : 128;  // in sixteens of bytes
    begin_products();
#pragma unroll
    for (int k = 0; k < kPairColumns / 16; ++k)
      shared_column_product<T>(sum, a + 2 * k, b + sixteen_rows * k);
#pragma unroll
    for (int k = 0; k < kPairColumns / 16; ++k)
      (shared_product<T>(row_sums, a + 2 * k, pairs.ones_matrix(), 1), ...);
    commit_products();
    wait_for_products<1>();
    if (item != PairItem::query_gradients)
      pairs.empty(tile, static_cast<PairItem>(static_cast<int>(item) - 1));
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
                                const float (&omegas)[1][4], int axis) const {
    const Lane lane;
    const auto& vectors = pairs.p.vectors;
    const int width = axis ? vectors.width_y : vectors.width_x;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = pairs.row - pairs.first_row + 8 * half;
      const float whole = omegas[0][2 * half];
      float* const to =
          static_cast<float*>(gradients) +
          (pairs.block.batch_head * pairs.g.padded_tokens + pairs.first_row + row) * width;
#pragma unroll
      for (int piece = 0; piece < kVectorPieces; ++piece) {
        const int entry = piece * 8 + 2 * lane.t;
        if (entry >= width) break;
        const float2 own = pairs.own_entries(axis ? Layout::y : Layout::x, row, entry);
        *reinterpret_cast<float2*>(to + entry) =
            make_float2(pairs.factor * (whole * own.x - c[piece][2 * half]),
                        pairs.factor * (whole * own.y - c[piece][2 * half + 1]));
      }
    }
  }
};

#endif

}  // namespace sape2::kernels::cuda
