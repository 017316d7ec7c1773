#pragma once

#include "kernels/cuda/attention.h"
#include "kernels/cuda/bias.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/softmax.cuh"

/// Attention forward: a block takes 64 queries of one head and walks over all keys.
namespace sape2::kernels::cuda {

template <class T, int HeadSize>
inline constexpr int kForwardColumns = kIsWide<T> && HeadSize > 64 ? 32 : 64;

template <class T, int HeadSize, BiasForm Form>
__host__ __device__ int forward_shared_bytes(const AttentionParams& p) {
  constexpr int kColumns = kForwardColumns<T, HeadSize>;
  int bytes = Tile<T>::bytes(kRowTile, HeadSize) + 2 * TilePair<T>::bytes(kColumns, HeadSize) +
              2 * kColumns * 4;
  if constexpr (Form == BiasForm::distance)
    bytes += DistanceTiles<T, kColumns / 8>::bytes(p.vectors);
  return bytes;
}

template <class T, int HeadSize, BiasForm Form>
__global__ void __launch_bounds__(kThreads)
    attention_forward_kernel(const __grid_constant__ AttentionParams p) {
  constexpr int kColumns = kForwardColumns<T, HeadSize>;
  constexpr int kPieces = kColumns / 8;
  constexpr int kOutPieces = HeadSize / 8;
  extern __shared__ __align__(128) unsigned char shared[];

  const auto& g = p.geometry;
  const int row_tiles = g.padded_tokens / kRowTile;
  const std::int64_t batch_head = blockIdx.x / row_tiles;
  const int first_row = blockIdx.x % row_tiles * kRowTile;
  const int image = batch_head / g.heads, head = batch_head % g.heads;
  const Lane lane;
  const int warp_row = threadIdx.x / 32 * 16;
  const int row = first_row + warp_row + lane.g;  // of this lane: row and row + 8

  // Shared memory: the queries, two buffers of keys and values, the columns' tokens, the bias's own.
  constexpr int kPairBytes = TilePair<T>::bytes(kColumns, HeadSize);
  const Tile<T> queries{shared, HeadSize};
  unsigned char* next = shared + Tile<T>::bytes(kRowTile, HeadSize);
  const TilePair<T> keys{next, kColumns, HeadSize};
  next += kPairBytes;
  const TilePair<T> values{next, kColumns, HeadSize};
  next += kPairBytes;
  int* const tokens = reinterpret_cast<int*>(next);
  next += 2 * kColumns * 4;

  const typename ColumnsOf<Form, kColumns>::Type columns(g);
  const auto k_head = head_of<T>(p.k, image, head), v_head = head_of<T>(p.v, image, head);
  load_rows(queries, head_of<T>(p.q, image, head), kRowTile, g.head_size, g.aligned,
            [&](int r) { return first_row + r < g.tokens ? first_row + r : -1; });

  BiasOf<T, kPieces, Form> bias(p, batch_head, first_row, row, next);

  const auto load_tile = [&](int tile) {
    const int buffer = tile % 2;
    const auto token_of = [&](int slot) { return columns.token(tile, slot); };
    for (int slot = threadIdx.x; slot < kColumns; slot += kThreads)
      tokens[buffer * kColumns + slot] = token_of(slot);
    load_rows(keys[buffer], k_head, kColumns, g.head_size, g.aligned, token_of);
    load_rows(values[buffer], v_head, kColumns, g.head_size, g.aligned, token_of);
    if constexpr (Form == BiasForm::distance) bias.load_columns(buffer, tile * kColumns);
    commit_copies();
  };

  const float scale = p.scale;
  float bias_factor = 0.0F;
  if constexpr (Form != BiasForm::none)
    bias_factor = p.gain[head] * (p.inside ? p.scale : 1.0F);

  OnlineSoftmax softmax;
  float out[kOutPieces][4] = {};
  load_tile(0);
  const int tiles = columns.tiles();
  for (int tile = 0; tile < tiles; ++tile) {
    const int buffer = tile % 2;
    if (tile + 1 < tiles) {
      load_tile(tile + 1);
      wait_for_copies<1>();
    } else {
      wait_for_copies<0>();
    }
    __syncthreads();

    float logits[kPieces][4] = {};
    add_product_with_rows(logits, queries, warp_row, keys[buffer], HeadSize);
    if constexpr (Form == BiasForm::direct) {
      if (columns.first_row(tile) == 0) bias.begin_part(columns, columns.part(tile));
      bias.for_each_piece(columns, tile, [&](int piece, const float(&b)[4]) {
#pragma unroll
        for (int e = 0; e < 4; ++e)
          logits[piece][e] = logits[piece][e] * scale + b[e] * bias_factor;
      });
    } else if constexpr (Form == BiasForm::distance) {
      float b[kPieces][4];
      bias.template bias<false>(b, nullptr, 0, buffer, row, tile * kColumns);
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          logits[piece][e] = logits[piece][e] * scale + b[piece][e] * bias_factor;
    } else {
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece)
#pragma unroll
        for (int e = 0; e < 4; ++e) logits[piece][e] *= scale;
    }
    if (!columns.full(tile)) {
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (tokens[buffer * kColumns + piece * 8 + 2 * lane.t + e % 2] < 0)
            logits[piece][e] = -INFINITY;
    }
    softmax.update(logits, out);
    add_product_with_columns<T>(out, logits, values[buffer]);
    __syncthreads();
  }

  const auto out_head = head_of<T>(p.out, image, head);
  softmax.finish();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int token = row + 8 * half;
    if (token >= g.tokens) continue;
    if (lane.t == 0 && p.softmax != nullptr)
      p.softmax[batch_head * g.tokens + token] = {softmax.maximum[half], softmax.sum[half]};
    store_row(out_head.row(token), out, half, 1.0F / softmax.sum[half], g.head_size, g.aligned);
  }
}

template <class T, int HeadSize, BiasForm Form>
void launch_attention_forward(const AttentionParams& p, cudaStream_t stream) {
  const std::int64_t blocks = p.geometry.batch_heads * (p.geometry.padded_tokens / kRowTile);
  launch(attention_forward_kernel<T, HeadSize, Form>, blocks, 1, kThreads,
         forward_shared_bytes<T, HeadSize, Form>(p), stream, p);
}

/// The kernel for a head size (padded to the next compiled one) and a form of bias.
template <class T>
void attention_forward(const AttentionParams& p, BiasForm form, cudaStream_t stream) {
  dispatch_head_size<T>(p.geometry.head_size, [&](auto size) {
    constexpr int kSize = decltype(size)::value;
    switch (form) {
      case BiasForm::none: return launch_attention_forward<T, kSize, BiasForm::none>(p, stream);
      case BiasForm::direct: return launch_attention_forward<T, kSize, BiasForm::direct>(p, stream);
      case BiasForm::distance:
        return launch_attention_forward<T, kSize, BiasForm::distance>(p, stream);
    }
  });
}

}  // namespace sape2::kernels::cuda
