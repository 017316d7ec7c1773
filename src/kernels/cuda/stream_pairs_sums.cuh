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
  // Of each axis the vectors' gradients, behind them Σω of row and row + 8, each twice.
  using VectorSums = float[kVectorPieces + 1][4];

  const StreamPairs<T, Steps>& pairs;
  float dq[8][4] = {}, dk[8][4] = {}, dv[8][4] = {};
  VectorSums dx = {}, dy = {};

  __device__ void run() {
    pairs.await_first_rows();
    for (PairTile<Steps> tile(0);; tile.advance(1)) {
      pairs.await_items(tile, 0);  // whose maker had waited for all of the tile
      add(dq, tile, PairItem::query_gradients, Layout::k);
      add(dv, tile, PairItem::key_weights, Layout::dout);
      if constexpr (!Layout::kHasAllSlots) {
        wait_for_products<1>();
        pairs.release_first();
      }
      add(dk, tile, PairItem::key_gradients, Layout::q);
      if constexpr (!Layout::kHasAllSlots) pairs.await_items(tile, 1);
      add(dx, tile, PairItem::omega_x, Layout::x);
      add(dy, tile, PairItem::omega_y, Layout::y);
      if (tile.number + 1 == unsigned(pairs.tiles)) break;
      wait_for_products<0>();
      pairs.release(tile);
    }
    // Each leaves while others are still in work, by way of the block's own rows: nothing else runs
    // here any more, and makers, who had read those, are done.
    const StreamBackward& params = pairs.params;
    wait_for_products<4>();
    store(params.base.dq, params.dq, dq, pairs.p.scale, Layout::q);
    wait_for_products<3>();
    store(params.base.dv, params.dv, dv, 1.0F, Layout::v);
    wait_for_products<2>();
    store(params.base.dk, params.dk, dk, pairs.p.scale, Layout::k);
    wait_for_products<1>();
    store_vectors(params.base.dx, dx, 0);
    wait_for_products<0>();
    store_vectors(params.base.dy, dy, 1);
    await_stored_boxes();
  }

  /// Adds an item times a part of its tile.
  template <int Pieces>
  __device__ void add(float (&sum)[Pieces][4], const PairTile<Steps>& tile, PairItem item,
                      int part) const {
    const std::uint64_t a = pairs.item_matrix(tile, item);
    std::uint64_t b = pairs.other_matrix(tile, part);
    asm("" : "+l"(b));  // else the compiler begins anew for every k
    begin_products();
#pragma unroll
    for (int k = 0; k < kPairColumns / 16; ++k)
      shared_column_product<T>(
          sum, a + 2 * k,
          Pieces == kVectorPieces + 1 ? pairs.vectors_and_ones(tile, part, k) : b + 128 * k);
    commit_products();
  }

  __device__ void store(const View& view, const CUtensorMap& map, float (&c)[8][4], float by,
                        int part) const {
    hold(c);
    store_tokens(view, map, pairs.block, Tile<T>{pairs.own(part), kRowTile, 64}, c, by,
                 pairs.first_row);
  }
  __device__ void store_vectors(void* gradients, VectorSums& c, int axis) const {
    hold(c);
    const Lane lane;
    const auto& vectors = pairs.p.vectors;
    const int width = axis ? vectors.width_y : vectors.width_x;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = pairs.row - pairs.first_row + 8 * half;
      const float whole = c[kVectorPieces][2 * half];
      float* const to =
          static_cast<float*>(gradients) +
          (pairs.block.batch_head * pairs.g.padded_tokens + pairs.first_row + row) * width;
#pragma unroll
      for (int piece = 0; piece < kVectorPieces; ++piece) {
        const int entry = piece * 8 + 2 * lane.t;
        const float2 own = pairs.own_entries(axis ? Layout::y : Layout::x, row, entry);
        const float2 gradient =
            make_float2(pairs.factor * (whole * own.x - c[piece][2 * half]),
                        pairs.factor * (whole * own.y - c[piece][2 * half + 1]));
        if (entry < width) *reinterpret_cast<float2*>(to + entry) = gradient;
      }
    }
  }
};

#endif

}  // namespace sape2::kernels::cuda
