#pragma once

#include "kernels/cuda/stream_pairs_block.cuh"

namespace sape2::kernels::cuda {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/// A warpgroup that makes, for every other tile, the weights and the logits' gradients of the
/// block's tokens both as queries and as keys, and ω, in 16 bits for the sums' products.
/// `Steps`: sixteens of a vector's entries.
template <class T, int Steps>
struct StreamPairWeights {
  using Layout = StreamPairsLayout<Steps>;
  using Fragments = typename StreamPairs<T, Steps>::Fragments;
  static constexpr int kPieces = kPairPieces;
  // Whether products are started a step ahead of their use: the sums of long vectors leave too few
  // registers for that.
  static constexpr bool kAhead = Steps <= 2;

  const StreamPairs<T, Steps>& pairs;
  int maker;  // 0 or 1
  StreamDistance<kPieces> distance[2];
  float row_notes[2][2];  // log2(Σ e^logit), dout · out
  float scale, factor;    // times log2(e)
  float with_bias = 0.0F;

  __device__ StreamPairWeights(const StreamPairs<T, Steps>& all, int number)
      : pairs(all),
        maker(number),
        distance{{all.p, all.block.batch_head, all.row, 0},
                 {all.p, all.block.batch_head, all.row, 1}},
        scale(all.p.scale * kLog2E),
        factor(all.factor * kLog2E) {
    const float* const notes = all.params.base.delta +
                               2 * (all.block.batch_head * all.g.padded_tokens + all.first_row) +
                               all.row - all.first_row;
#pragma unroll
    for (int i = 0; i < 4; ++i) row_notes[i / 2][i % 2] = notes[i / 2 * 8 + i % 2 * kRowTile];
  }

  /// Returns this lane's share of Σ gradient · bias.
  __device__ float run() {
    for (int tile = maker; tile < pairs.tiles; tile += 2) one_tile(tile);
    return with_bias;
  }

  __device__ void one_tile(int tile) {
    float length[kPieces][4], along_y[kPieces][4], scores[kPieces][4], dweights[kPieces][4];
    Fragments inverse[2], weights, query_gradients, key_gradients;
    pairs.await_first(tile);
    begin_products();
    start<Steps>(length, tile, Layout::x, Layout::x);
    start<Steps>(along_y, tile, Layout::y, Layout::y);
    start(scores, tile, Layout::q, Layout::k);
    wait_for_products<2>();
    hold(length);
    std::uint32_t greatest = lengths(length, inverse[0], tile, 0);
    wait_for_products<1>();
    hold(along_y);
    greatest = greater_pairs<T>(greatest, lengths(along_y, inverse[1], tile, 1));
    if (is_infinite(greatest)) {
      replace_infinite(length, inverse[0]);
      replace_infinite(along_y, inverse[1]);
    }
    add(length, along_y);
    pairs.await_rest(tile);
    start_again(dweights, tile, Layout::dout, Layout::v);

    wait_for_products<1>();
    hold(scores);
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        scores[piece][e] = power_of_2(
            fmaf(scores[piece][e], scale, fmaf(length[piece][e], factor, -row_notes[e / 2][0])));
    if ((tile + 1) * kPairColumns > pairs.g.tokens) clear_padding(scores, tile);
    as_fragments(weights, scores);
    if constexpr (kAhead) start_again(scores, tile, Layout::k, Layout::q);
    wait_for_products<kAhead ? 1 : 0>();
    hold(dweights);
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece)
#pragma unroll
      for (int e = 0; e < 4; ++e) dweights[piece][e] -= row_notes[e / 2][1];
    gradients(query_gradients, weights, dweights);
    if (pairs.params.base.dgain != nullptr) add_gain(query_gradients, length);
    if constexpr (!kAhead) start_again(scores, tile, Layout::k, Layout::q);
    if constexpr (kAhead) start_again(dweights, tile, Layout::v, Layout::dout);

    // Of two neighbouring queries.
    const float2* const column_notes = reinterpret_cast<const float2*>(pairs.note(tile)) + Lane().t;
    wait_for_products<kAhead ? 1 : 0>();
    hold(scores);
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
      const float2 pair = column_notes[piece * 4];
#pragma unroll
      for (int e = 0; e < 4; ++e)
        scores[piece][e] = power_of_2(fmaf(
            scores[piece][e], scale, fmaf(length[piece][e], factor, e % 2 ? -pair.y : -pair.x)));
    }
    as_fragments(weights, scores);
    if constexpr (!kAhead) start_again(dweights, tile, Layout::v, Layout::dout);
    wait_for_products<0>();
    hold(dweights);
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
      const float2 pair = column_notes[kPairColumns / 2 + piece * 4];
#pragma unroll
      for (int e = 0; e < 4; ++e) dweights[piece][e] -= e % 2 ? pair.y : pair.x;
    }
    gradients(key_gradients, weights, dweights);
    pairs.begin_turn(tile);
    pairs.put(tile, PairItem::query_gradients, query_gradients);
    pairs.put(tile, PairItem::key_weights, weights);
    pairs.put(tile, PairItem::key_gradients, key_gradients);
    pairs.hand_over(tile, PairItem::query_gradients, PairItem::key_gradients);
    // ω: a pair's gradients both ways round over its distance.
#pragma unroll
    for (int k = 0; k < kPieces / 2; ++k)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        query_gradients[k].r[i] = add_pairs<T>(query_gradients[k].r[i], key_gradients[k].r[i]);
    for (Fragments& omega : inverse) {
      multiply(omega, query_gradients);
#pragma unroll
      for (int k = 0; k < kPieces / 2; ++k)
#pragma unroll
        for (int i = 0; i < 4; ++i) omega[k].r[i] = within_range<T>(omega[k].r[i]);
    }
    pairs.put(tile, PairItem::omega_x, inverse[0]);
    pairs.put(tile, PairItem::omega_y, inverse[1]);
    pairs.hand_over(tile, PairItem::omega_x, PairItem::omega_y);
    pairs.end_turn(tile);
  }

  template <int Sixteens = 4>
  __device__ void start(float (&c)[kPieces][4], int tile, int own, int other) const {
    start_row_product<T, Sixteens>(c, pairs.own_matrix(own), pairs.other_matrix(tile, other));
    commit_products();
  }
  /// Into registers that were in use.
  __device__ void start_again(float (&c)[kPieces][4], int tile, int own, int other) const {
    begin_products();
    start(c, tile, own, other);
  }
  /// From products of an axis's vectors to distances, and their inverses, whose greatest it
  /// returns.
  __device__ std::uint32_t lengths(float (&c)[kPieces][4], Fragments& inverse, int tile,
                                   int axis) const {
    const float2* const norms =
        reinterpret_cast<const float2*>(pairs.lengths(tile) + axis * kPairColumns) + Lane().t;
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
      const float2 pair = norms[piece * 4];
#pragma unroll
      for (int e = 0; e < 4; ++e) c[piece][e] = distance[axis].square(c[piece][e], pair, e);
    }
    distance[axis].clear_prefix(c, pairs.row, tile * kPairColumns);
    std::uint32_t greatest = 0;
#pragma unroll
    for (int k = 0; k < kPieces / 2; ++k) {
      float by[2][4];
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        float& square = c[2 * k + i / 4][i % 4];
        by[i / 4][i % 4] = inverse_root_of_distance(square);
        square = fabsf(square) * by[i / 4][i % 4];
      }
      inverse[k] = as_a<T>(by[0], by[1]);
      round_here(inverse[k]);
#pragma unroll
      for (int i = 0; i < 4; ++i) greatest = greater_pairs<T>(greatest, inverse[k].r[i]);
    }
    return greatest;
  }
  /// Whether one of a pair is, for any lane.
  __device__ static bool is_infinite(std::uint32_t greatest) {
    const float2 pair = unpack<T>(greatest);
    return __any_sync(0xffffffffu, fmaxf(pair.x, pair.y) == INFINITY);
  }
  /// Inverses are infinite at distance 0, which has no gradient and whose own number is none yet,
  /// or beyond what the type holds. Few tiles have any.
  __device__ static void replace_infinite(float (&c)[kPieces][4], Fragments& inverse) {
#pragma unroll
    for (int k = 0; k < kPieces / 2; ++k)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 pair = unpack<T>(inverse[k].r[i]);
        float by[2] = {pair.x, pair.y};
#pragma unroll
        for (int side = 0; side < 2; ++side) {
          float& length = c[2 * k + i / 2][i % 2 * 2 + side];
          if (by[side] != INFINITY) continue;
          by[side] = length < INFINITY ? 65504.0F : 0.0F;
          length = length < INFINITY ? length : 0.0F;
        }
        inverse[k].r[i] = pack<T>(by[0], by[1]);
      }
  }
  __device__ void clear_padding(float (&c)[kPieces][4], int tile) const {
    const int first = tile * kPairColumns + 2 * Lane().t;
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (first + piece * 8 + e % 2 >= pairs.g.tokens) c[piece][e] = 0.0F;
  }
  __device__ static void add(float (&to)[kPieces][4], const float (&from)[kPieces][4]) {
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece)
#pragma unroll
      for (int e = 0; e < 4; ++e) to[piece][e] += from[piece][e];
  }
  __device__ void add_gain(const Fragments& gradients, const float (&length)[kPieces][4]) {
#pragma unroll
    for (int k = 0; k < kPieces / 2; ++k)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 pair = unpack<T>(gradients[k].r[i]);
        const float* const by = length[2 * k + i / 2] + i % 2 * 2;
        with_bias = fmaf(pair.x, by[0], fmaf(pair.y, by[1], with_bias));
      }
  }
  /// The logits' gradients: weights times (their gradients less the mean).
  __device__ static void gradients(Fragments& to, const Fragments& weights,
                                   const float (&differences)[kPieces][4]) {
    as_fragments(to, differences);
    multiply(to, weights);
  }
  __device__ static void multiply(Fragments& to, const Fragments& by) {
#pragma unroll
    for (int k = 0; k < kPieces / 2; ++k)
#pragma unroll
      for (int i = 0; i < 4; ++i) to[k].r[i] = multiply_pairs<T>(by[k].r[i], to[k].r[i]);
  }
  __device__ static void as_fragments(Fragments& to, const float (&from)[kPieces][4]) {
#pragma unroll
    for (int k = 0; k < kPieces / 2; ++k) {
      to[k] = as_a<T>(from[2 * k], from[2 * k + 1]);
      round_here(to[k]);
    }
  }
  /// Else the compiler may keep the float32 numbers until the rounded ones are used.
  __device__ static void round_here(FragmentA<T>& a) {
#pragma unroll
    for (int i = 0; i < 4; ++i) asm volatile("" : "+r"(a.r[i]));
  }
};

#endif

}  // namespace sape2::kernels::cuda
