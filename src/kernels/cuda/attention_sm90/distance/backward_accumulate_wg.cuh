#pragma once

#include "kernels/cuda/arch/tma.cuh"
#include "kernels/cuda/arch/wgmma.cuh"
#include "kernels/cuda/arch/wgmma_instructions.cuh"
#include "kernels/cuda/attention_sm90/distance/backward_block.cuh"
#include "kernels/cuda/attention_sm90/distance/backward_smem.cuh"
#include "kernels/cuda/attention_sm90/kernels.h"
#include "kernels/cuda/attention_sm90/tiles.cuh"
#include "kernels/cuda/common/element.cuh"
#include "kernels/cuda/common/tile.cuh"

namespace sape2::kernels::cuda::sm90 {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/// The warpgroup that gathers every gradient of the block's tokens, by products alone, and brings
/// in the next tiles. The gradient of vectors, Σ_n ω_n (u − u_n), is u·Σω − ω·U with the same
/// rounded ω in both terms, Σω by a product with ones. `Steps`: sixteens of a vector's entries.
template <class T, int Steps, bool Walks>
struct BwdAccumulateWg {
  using Smem = DistanceBwdSmem<Steps>;
  static constexpr int kVectorN8 = 2 * Steps;
  // Of each axis the vectors' gradients, behind them Σω of row and row + 8, each twice.
  using VectorSums = float[kVectorN8 + 1][4];
  // A vector's entries where those of `VectorSums` are, of row and row + 8.
  using Entries = std::uint32_t[kVectorN8][2];

  DistanceBwdBlock<T, Steps, Walks> pairs;
  float dq[8][4], dk[8][4], dv[8][4];
  VectorSums dx, dy;

  __device__ void run() {
    if constexpr (!Walks) pairs.wait_first_rows();
    for (PairTile<Steps> tile(0);; tile.advance(1)) {
      add_tiles(tile);
      store_all();
      tma_store_wait();
      if (!has_next()) return;
      replace(tile);
      pairs.block = next();
      ++pairs.phase;
      tile.number -= pairs.tiles;
    }
  }
  __device__ BlockCoord next() const { return pairs.block.next(pairs.g, pairs.params.step); }
  __device__ bool has_next() const { return Walks && next().exists(pairs.params.step); }

  /// All of a head, up to its last, whose products are still in work.
  __device__ void add_tiles(PairTile<Steps>& tile) {
    clear(dq), clear(dk), clear(dv), clear(dx), clear(dy);
    for (;; tile.advance(1)) {
      const bool is_last = tile.number + 1 == unsigned(pairs.tiles);
      if constexpr (Walks)
        if (is_last) load_next_rows();
      pairs.wait_items(tile, 0);  // whose score warpgroup had waited for all of the tile
      add(dq, tile, PairItem::query_gradients, Smem::k);
      add(dv, tile, PairItem::key_weights, Smem::dout);
      if constexpr (!Smem::kHasAllSlots) {
        wgmma_wait<1>();
        pairs.release_first();
      }
      add(dk, tile, PairItem::key_gradients, Smem::q);
      if constexpr (!Smem::kHasAllSlots) pairs.wait_items(tile, 1);
      add(dx, tile, PairItem::omega_x, Smem::x);
      add(dy, tile, PairItem::omega_y, Smem::y);
      if (is_last) return;
      wgmma_wait<0>();
      replace(tile);
    }
  }

  /// A tile by its number from the first of these rows on: behind the last follow those of the next
  /// rows, if there are any.
  struct Source {
    BlockCoord block;
    int first;  // column
    bool exists;
  };
  __device__ Source source(int number) const {
    if (!Walks || number < pairs.tiles)
      return {pairs.block, number * kPairColumns, number < pairs.tiles};
    return {next(), (number - pairs.tiles) * kPairColumns, has_next()};
  }
  /// A tile's stages take others, a part by each warp, since score warpgroups share a scheduler
  /// with each. Where it is counted what comes next warps stay whole, or the compiler would no
  /// longer know that it is the same for all lanes, as wgmma needs.
  __device__ void replace(const PairTile<Steps>& tile) {
    pairs.release(tile);
    if (!Walks && !elect_one()) return;
    const auto starts_copies = [] { return !Walks || elect_one(); };
    const bool is_rest = pairs.warp < 2;
    const int number = tile.number + (is_rest ? Smem::kRestStages : Smem::kFirstStages);
    const Source from = source(number);
    if (!from.exists) return;
    if (is_rest) {
      if (pairs.warp == 0) {
        if (!starts_copies()) return;
        pairs.expect_rest(tile);
        pairs.load(Smem::v, from.block, from.first, tile);
        pairs.load(Smem::q, from.block, from.first, tile);
        pairs.load(Smem::dout, from.block, from.first, tile);
      } else {
        Source later = source(number + 2);
        if (!later.exists) later = from;  // nobody will ask for those
        if (!starts_copies()) return;
        pairs.load_lse_delta(from.block, from.first, tile);
        pairs.load_next_lengths(later.block, later.first, tile);
      }
    } else {
      if (!starts_copies()) return;
      if (pairs.warp == 2) {
        pairs.expect_first(tile);
        pairs.load(Smem::k, from.block, from.first, tile);
      } else {
        pairs.load(Smem::x, from.block, from.first, tile);
        pairs.load(Smem::y, from.block, from.first, tile);
      }
    }
  }
  /// While the last tile's score warpgroup still makes something of these.
  __device__ void load_next_rows() const {
    if (pairs.warp == 0) {
      pairs.wait_rows_read(0);
      if (!elect_one()) return;
      if (has_next()) {
        pairs.begin_first_rows(next());
        pairs.load_own(Smem::q, next());
      } else {
        pairs.say_there_are_no_more_rows();
      }
    } else if (pairs.warp == 1 && has_next()) {
      pairs.wait_rows_read(1);
      if (!elect_one()) return;
      pairs.begin_rest_of_rows(next());
      pairs.load_own(Smem::k, next());
      pairs.load_own(Smem::v, next());
    }
  }

  /// Each leaves while others are still in work, by way of the block's own rows, which score
  /// warpgroups have read, or, where those are being replaced, of the item that was its last
  /// product's.
  __device__ void store_all() {
    const BackwardParams& params = pairs.params;
    Entries own;
    read_vectors(own, 0);
    if constexpr (!Walks) {
      wgmma_wait<4>();
      store(params.base.dq, params.dq, dq, pairs.p.scale, PairItem::query_gradients, Smem::q);
    }
    wgmma_wait<3>();
    store(params.base.dv, params.dv, dv, 1.0F, PairItem::key_weights, Smem::v);
    wgmma_wait<2>();
    store(params.base.dk, params.dk, dk, pairs.p.scale, PairItem::key_gradients, Smem::k);
    wgmma_wait<1>();
    store_vectors(params.base.dx, dx, own, 0);
    read_vectors(own, 1);
    wgmma_wait<0>();
    // It could leave first here, too; this is the order that was measured.
    if constexpr (Walks)
      store(params.base.dq, params.dq, dq, pairs.p.scale, PairItem::query_gradients, Smem::q);
    store_vectors(params.base.dy, dy, own, 1);
  }

  /// Adds an item times a part of its tile.
  template <int N8>
  __device__ void add(float (&sum)[N8][4], const PairTile<Steps>& tile, PairItem item,
                      int part) const {
    const std::uint64_t a = pairs.item_matrix(tile, item);
    std::uint64_t b = pairs.other_matrix(tile, part);
    asm("" : "+l"(b));  // else the compiler begins anew for every k
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kPairColumns / 16; ++k)
      wgmma_ss_mn_major<T>(
          sum, a + 2 * k,
          N8 == kVectorN8 + 1 ? pairs.vectors_and_ones(tile, part, k) : b + 128 * k);
    wgmma_commit();
  }

  __device__ void store(const View& view, const CUtensorMap& map, float (&c)[8][4], float by,
                        PairItem item, int part) const {
    fence_accumulators(c);
    if constexpr (Walks) warpgroup_sync();
    const int place = Walks ? Smem::place(item) : Smem::own(part);
    store_tokens(view, map, pairs.block, Tile<T>{pairs_memory + place, kRowTile, 64}, c, by,
                 first_row());
  }
  /// Of the four warps: wgmma has read for all of them what was waited for.
  __device__ static void warpgroup_sync() {
    asm volatile("bar.sync 1, %0;" ::"n"(kThreads) : "memory");
  }

  __device__ int first_row() const {
    return pairs.block.row_tile * kRowTile;
  }
  /// This lane's rows of x or y, or of their gradients, one behind the other.
  template <class Number>
  __device__ Number* vector_row(Number* all, int half, int width) const {
    return all + (pairs.block.batch_head * pairs.g.padded_tokens + first_row() + pairs.own_row() +
                  8 * half) *
                     width;
  }
  /// The block's vectors, from memory where its own rows are being replaced.
  __device__ void read_vectors(Entries& to, int axis) const {
    if constexpr (!Walks) {
#pragma unroll
      for (int i = 0; i < 2 * kVectorN8; ++i)
        to[i / 2][i % 2] = pairs.own_entries(axis ? Smem::y : Smem::x, pairs.own_row() + i % 2 * 8,
                                             i / 2 * 8 + 2 * pairs.quad());
      return;
    }
    const auto& vectors = pairs.p.vectors;
    const int width = axis ? vectors.width_y : vectors.width_x;
    const int entries = axis ? pairs.g.rows : pairs.g.cols;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const T* const from =
          vector_row(static_cast<const T*>(axis ? vectors.y : vectors.x), half, width);
#pragma unroll
      for (int n8 = 0; n8 < kVectorN8; ++n8) {
        const int entry = n8 * 8 + 2 * pairs.quad();
        std::uint32_t pair = 0;
        if (entry < entries) pair = *reinterpret_cast<const std::uint32_t*>(from + entry);
        to[n8][half] = entry + 1 < entries ? pair : pair & 0xffff;
      }
    }
  }
  __device__ void store_vectors(void* gradients, VectorSums& c, const Entries& own,
                                int axis) const {
    fence_accumulators(c);
    const auto& vectors = pairs.p.vectors;
    const int width = axis ? vectors.width_y : vectors.width_x;
    const float factor = pairs.factor(pairs.block.head);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float whole = c[kVectorN8][2 * half];
      T* const to = vector_row(static_cast<T*>(gradients), half, width);
#pragma unroll
      for (int n8 = 0; n8 < kVectorN8; ++n8) {
        const int entry = n8 * 8 + 2 * pairs.quad();
        const float2 u = unpack<T>(own[n8][half]);
        const std::uint32_t gradient = pack<T>(factor * (whole * u.x - c[n8][2 * half]),
                                               factor * (whole * u.y - c[n8][2 * half + 1]));
        if (entry < width) *reinterpret_cast<std::uint32_t*>(to + entry) = gradient;
      }
    }
  }
};

#endif

}  // namespace sape2::kernels::cuda::sm90
