#pragma once

#include "kernels/cuda/arch/tma.cuh"
#include "kernels/cuda/arch/wgmma.cuh"
#include "kernels/cuda/attention_sm90/distance/backward_block.cuh"
#include "kernels/cuda/attention_sm90/distance/backward_fragments.cuh"
#include "kernels/cuda/attention_sm90/distance/backward_smem.cuh"
#include "kernels/cuda/attention_sm90/distance/backward_smem_view.cuh"
#include "kernels/cuda/attention_sm90/distance/bias.cuh"
#include "kernels/cuda/attention_sm90/tiles.cuh"
#include "kernels/cuda/common/element.cuh"
#include "kernels/cuda/common/online_softmax.cuh"
#include "kernels/cuda/common/tile.cuh"

namespace sape2::kernels::cuda::sm90 {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/// A warpgroup that makes, for every other tile, the weights and the logits' gradients of the
/// block's tokens both as queries and as keys, and ω, in 16 bits for the sums' products.
/// `Steps`: sixteens of a vector's entries.
template <class T, int Steps, bool Walks>
struct BwdScoreWg {
  using Smem = DistanceBwdSmem<Steps>;
  using Place = PairTile<Steps>;
  using RowsPlace = typename DistanceBwdSmemView<T, Steps>::RowsPlace;
  using Fragments = PairFragments<T>;
  static constexpr int kN8 = kPairN8;
  // Whether products are started a step ahead of their use, and barriers asked before others are
  // waited for: the sums of long vectors leave too few registers for that.
  static constexpr bool kAhead = Steps <= 2;

  DistanceBwdBlock<T, Steps, Walks> pairs;  // its own, since it hides a number from the compiler
  unsigned index;                           // 0 or 1
  int row;                                  // it and row + 8 are this lane's
  // How many tiles, from the first on, have pairs with prefix tokens; how many, before others, have
  // gradients that need no more than to be made.
  unsigned with_prefix, simple;
  float scale, factor;  // times log2(e)
  float with_bias = 0.0F;

  __device__ BwdScoreWg(const DistanceBwdBlock<T, Steps, Walks>& all, unsigned number)
      : pairs(all),
        index(number),
        simple(all.params.base.dgain != nullptr ? 0 : all.g.tokens / kPairColumns),
        scale(all.p.scale * kLog2E) {}

  /// Returns this lane's share of Σ gradient · bias.
  __device__ float run() {
    if (index >= unsigned(pairs.tiles)) return 0.0F;
    Lengths lengths;
    pairs.wait_first_rows();
    read_columns(lengths, pairs.first_lengths(index));
    bool has_first = false;
    Place tile(index);
    if constexpr (Walks) {
      for (RowsPlace rows = rows_place(); rows.first >= 0; rows = rows_place()) {
        take(rows);
        one_head(tile, lengths, has_first);
        tile.number -= pairs.tiles;
        ++pairs.phase;
        pairs.wait_first_rows();
      }
    } else {
      take({pairs.block.row_tile * kRowTile, pairs.block.head});
      read_own(lengths);
      one_head(tile, lengths, has_first);
    }
    return with_bias;
  }
  /// Of rows that have arrived.
  __device__ RowsPlace rows_place() const {
    const RowsPlace rows = *pairs.place();
    mbarrier_arrive(pairs.place_empty());
    return rows;
  }
  __device__ void take(RowsPlace rows) {
    const int first = warp_uniform(rows.first);
    row = first + pairs.own_row();
    with_prefix = pairs.g.prefix > first + 16 * pairs.warp
                      ? pairs.tiles
                      : (pairs.g.prefix + kPairColumns - 1) / kPairColumns;
    factor = pairs.factor(rows.head) * kLog2E;
    // Else it is worked out anew for every tile, or what is made of it is kept for all rows.
    asm volatile("" : "+r"(pairs.lane_chunk));
  }

  __device__ PairNumbers numbers(const float* columns) const {
    return PairNumbers(reinterpret_cast<const float2*>(columns) + pairs.quad());
  }
  /// Likewise of its two rows.
  __device__ float2 row_numbers(const float* rows) const {
    const float* const from = rows + unsigned(row) % kRowTile;
    return make_float2(from[0], from[8]);
  }

  /// Squared lengths of a lane's columns and rows, asked for while its warp ends the tile before.
  struct Lengths {
    PairNumbers x, y;
    float2 own_x, own_y;
  };
  __device__ void read_columns(Lengths& to, const float* from) const {
    to.x = numbers(from);
    to.y = numbers(from + kPairColumns);
  }
  __device__ void read_own(Lengths& to) const {
    to.own_x = row_numbers(pairs.own_lengths());
    to.own_y = row_numbers(pairs.own_lengths() + kRowTile);
  }

  /// All that it has of these rows' tiles.
  __device__ void one_head(Place& tile, Lengths& lengths, bool& has_first) {
    while (tile.number < unsigned(pairs.tiles)) one_tile(tile, lengths, has_first);
    // Not with the next tile, which waits for rows that wait for this.
    if constexpr (Smem::kHasAllSlots) pairs.hand_over(0);
  }
  /// Goes on to the next one. `has_first`: whether there is nothing to wait for at its beginning.
  __device__ void one_tile(Place& tile, Lengths& lengths, bool& has_first) {
    float along_x[kN8][4], length[kN8][4], scores[kN8][4], dweights[kN8][4];
    Fragments inverse[2], weights, query_gradients, key_gradients;
    const bool is_last = tile.number + 1 == unsigned(pairs.tiles);
    if constexpr (Walks) read_own(lengths);  // at a tile's end other rows may be coming in
    if (!has_first) pairs.wait_first(tile);
    wgmma_fence();
    start<Steps>(along_x, tile, Smem::x, Smem::x);
    start<Steps>(length, tile, Smem::y, Smem::y);
    // Of the tile before: until what was put is visible takes a while.
    if constexpr (Smem::kHasAllSlots) pairs.hand_over(0, !tile.is_first());
    wgmma_wait<1>();
    fence_accumulators(along_x);
    squares(along_x, lengths.own_x, lengths.x, tile);
    constexpr float kNone[kN8][4] = {};
    std::uint32_t greatest = inverse_roots<T>(along_x, inverse[0], kNone);
    if constexpr (kAhead)
      if (is_infinite<T>(greatest) || tile.number < with_prefix)
        replace_infinite(along_x, inverse[0], kNone, tile);
    wgmma_wait<0>();
    fence_accumulators(length);
    squares(length, lengths.own_y, lengths.y, tile);
    start_again(scores, tile, Smem::q, Smem::k);
    const bool has_rest = kAhead && pairs.has_rest(tile);
    if constexpr (kAhead) {
      greatest = inverse_roots<T>(length, inverse[1], along_x);
      if (is_infinite<T>(greatest) || tile.number < with_prefix)
        replace_infinite(length, inverse[1], along_x, tile);
    } else {
      // With fewer registers the compiler does better if both axes are looked at together.
      greatest = greater_pairs<T>(greatest, inverse_roots<T>(length, inverse[1], kNone));
      if (is_infinite<T>(greatest)) {
        replace_infinite(along_x, inverse[0], kNone, tile);
        replace_infinite(length, inverse[1], kNone, tile);
      }
      add_tile(length, along_x);
    }
    if (!has_rest) pairs.wait_rest(tile);
    if (tile.is_first()) pairs.wait_rest_of_rows();
    const float2 row_sums = row_numbers(pairs.own_lse_delta());
    start_again(dweights, tile, Smem::dout, Smem::v);

    wgmma_wait<1>();
    fence_accumulators(scores);
    pairs.release_rows(0, is_last);
    weigh_queries(scores, length, row_sums);
    const float2 row_deltas = row_numbers(pairs.own_lse_delta() + kRowTile);
    as_fragments<T>(weights, scores);
    if constexpr (kAhead) start_again(scores, tile, Smem::k, Smem::q);
    wgmma_wait<kAhead ? 1 : 0>();
    fence_accumulators(dweights);
    const PairNumbers column_sums = numbers(pairs.lse_delta(tile));
    subtract(dweights, row_deltas);
    make_gradients<T>(query_gradients, weights, dweights);
    if (tile.number >= simple) [[unlikely]] {
      clear_padding(query_gradients, tile);
      with_bias = add_product<T>(with_bias, query_gradients, length);
    }
    if constexpr (!kAhead) start_again(scores, tile, Smem::k, Smem::q);
    if constexpr (kAhead) start_again(dweights, tile, Smem::v, Smem::dout);

    wgmma_wait<kAhead ? 1 : 0>();
    fence_accumulators(scores);
    make_key_logits(scores, length, column_sums);
    const PairNumbers column_deltas = numbers(pairs.lse_delta(tile) + kPairColumns);
    if constexpr (!kAhead) start_again(dweights, tile, Smem::v, Smem::dout);
    powers(scores);
    as_fragments<T>(weights, scores);
    wgmma_wait<0>();
    fence_accumulators(dweights);
    subtract(dweights, column_deltas);
    make_gradients<T>(key_gradients, weights, dweights);
    pairs.release_rows(1, is_last);
    make_omega(inverse, query_gradients, key_gradients);
    read_columns(lengths, pairs.next_lengths(tile));
    if constexpr (!Walks) read_own(lengths);
    pairs.wait_turn(tile);
    Place next = tile;
    next.advance(2);
    if constexpr (kAhead) has_first = pairs.has_first(next);
    pairs.put(tile, PairItem::query_gradients, query_gradients);
    pairs.put(tile, PairItem::key_weights, weights);
    pairs.put(tile, PairItem::key_gradients, key_gradients);
    if constexpr (!Smem::kHasAllSlots) {
      pairs.hand_over(0);
      pairs.wait_items(tile, 0);  // all four warps are done with the tile's values
    }
    pairs.put(tile, PairItem::omega_x, inverse[0]);
    if constexpr (!Smem::kHasAllSlots) pairs.wait_first_released(tile);
    pairs.put(tile, PairItem::omega_y, inverse[1]);
    if constexpr (!Smem::kHasAllSlots) pairs.hand_over(1);
    tile = next;
  }

  /// Scores become the weights of queries along the rows.
  __device__ void weigh_queries(float (&c)[kN8][4], const float (&length)[kN8][4],
                                float2 lse) const {
#pragma unroll
    for (int n8 = 0; n8 < kN8; ++n8)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        c[n8][e] = power_of_2(
            fmaf(c[n8][e], scale, fmaf(length[n8][e], factor, -(e < 2 ? lse.x : lse.y))));
  }
  /// From the weights' gradients, their means of rows or of columns.
  __device__ static void subtract(float (&c)[kN8][4], float2 means) {
#pragma unroll
    for (int n8 = 0; n8 < kN8; ++n8)
#pragma unroll
      for (int e = 0; e < 4; ++e) c[n8][e] -= e < 2 ? means.x : means.y;
  }
  __device__ static void subtract(float (&c)[kN8][4], const PairNumbers& means) {
#pragma unroll
    for (int n8 = 0; n8 < kN8; ++n8)
#pragma unroll
      for (int e = 0; e < 4; ++e) c[n8][e] -= means.at(n8, e);
  }
  /// Scores become the logits of keys along the rows, less lse.
  __device__ void make_key_logits(float (&c)[kN8][4], const float (&length)[kN8][4],
                                  const PairNumbers& lse) const {
#pragma unroll
    for (int n8 = 0; n8 < kN8; ++n8)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        c[n8][e] = fmaf(c[n8][e], scale, fmaf(length[n8][e], factor, -lse.at(n8, e)));
  }
  __device__ static void powers(float (&c)[kN8][4]) {
#pragma unroll
    for (int n8 = 0; n8 < kN8; ++n8)
#pragma unroll
      for (int e = 0; e < 4; ++e) c[n8][e] = power_of_2(c[n8][e]);
  }
  /// ω: a pair's gradients both ways round over its distance, in the inverses' place.
  __device__ static void make_omega(Fragments (&inverse)[2], const Fragments& query_gradients,
                                    const Fragments& key_gradients) {
    Fragments both;
#pragma unroll
    for (int k = 0; k < kN8 / 2; ++k)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        both[k].r[i] = add_pairs<T>(query_gradients[k].r[i], key_gradients[k].r[i]);
    limit<T>(both);
    for (Fragments& omega : inverse) {
      multiply<T>(omega, both);
      limit<T>(omega);
    }
  }
  template <int Sixteens = 4>
  __device__ void start(float (&c)[kN8][4], const Place& tile, int own, int other) const {
    start_wgmma_ss<T, Sixteens>(c, pairs.own_matrix(own), pairs.other_matrix(tile, other));
    wgmma_commit();
  }
  /// Into registers that were in use.
  __device__ void start_again(float (&c)[kN8][4], const Place& tile, int own, int other) const {
    wgmma_fence();
    start(c, tile, own, other);
  }
  /// From products of an axis's vectors to squared distances.
  __device__ void squares(float (&c)[kN8][4], float2 own_norms, const PairNumbers& norms,
                          const Place& tile) const {
    const DistanceBias<kN8> distance(pairs.g.prefix, own_norms);
#pragma unroll
    for (int n8 = 0; n8 < kN8; ++n8)
#pragma unroll
      for (int e = 0; e < 4; ++e) c[n8][e] = distance.square(c[n8][e], norms.of[n8], e);
    // Otherwise what prefix tokens need is done where inverses are infinite.
    if constexpr (!kAhead) distance.clear_prefix(c, row, tile.number * kPairColumns);
  }
  /// Inverses are infinite at distance 0, which has no gradient and whose own number is none yet,
  /// or beyond what the type holds. Prefix tokens are at no distance, whatever was made of their
  /// vectors. Few tiles have any of these.
  __device__ void replace_infinite(float (&c)[kN8][4], Fragments& inverse,
                                   const float (&others)[kN8][4], const Place& tile) const {
    const int prefix = pairs.g.prefix, first = first_column(tile);
#pragma unroll
    for (int k = 0; k < kN8 / 2; ++k)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 pair = unpack<T>(inverse[k].r[i]);
        float by[2] = {pair.x, pair.y};
#pragma unroll
        for (int side = 0; side < 2; ++side) {
          const int n8 = 2 * k + i / 2, e = i % 2 * 2 + side;
          const bool is_patch =
              row + i % 2 * 8 >= prefix && first + k * 16 + i / 2 * 8 + side >= prefix;
          if (by[side] != INFINITY && is_patch) continue;
          const bool is_far = c[n8][e] < INFINITY && is_patch;
          by[side] = is_far ? 65504.0F : 0.0F;
          if (!is_far) c[n8][e] = others[n8][e];
        }
        inverse[k].r[i] = pack<T>(by[0], by[1]);
      }
  }
  /// The first of a lane's columns.
  __device__ int first_column(const Place& tile) const {
    return tile.number * kPairColumns + 2 * pairs.quad();
  }
  /// Padding has no gradients.
  __device__ void clear_padding(Fragments& gradients, const Place& tile) const {
    const int first = first_column(tile);
#pragma unroll
    for (int k = 0; k < kN8 / 2; ++k)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int column = first + k * 16 + i / 2 * 8;
        if (column >= pairs.g.tokens) gradients[k].r[i] = 0;
        if (column + 1 >= pairs.g.tokens) gradients[k].r[i] &= 0xffff;
      }
  }
};

#endif

}  // namespace sape2::kernels::cuda::sm90
