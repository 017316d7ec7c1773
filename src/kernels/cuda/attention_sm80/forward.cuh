#pragma once

#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/arch/wgmma.cuh"
#include "kernels/cuda/attention_sm80/bias.cuh"
#include "kernels/cuda/attention_sm80/columns.cuh"
#include "kernels/cuda/attention_sm80/kernels.h"
#include "kernels/cuda/attention_sm80/smem.h"
#include "kernels/cuda/common/element.cuh"
#include "kernels/cuda/common/online_softmax.cuh"
#include "kernels/cuda/common/tile.cuh"
#include "kernels/cuda/host/launch.h"
#include "kernels/cuda/host/params.h"

/// Attention forward: a block takes 64 queries of one head and walks over all keys.
namespace sape2::kernels::cuda::sm80 {

template <class T, int HeadSize, BiasForm Form>
inline constexpr int kForwardColumns = forward_columns(sizeof(T), HeadSize, Form);

/// Three blocks share a multiprocessor and hide each other's waits.
template <class T, int HeadSize>
inline constexpr int kForwardBlocks = kIsFp32<T> || HeadSize > 64 ? 1 : 3;

template <class T, int HeadSize, BiasForm Form>
__global__ void __launch_bounds__(kThreads, kForwardBlocks<T, HeadSize>)
    forward_kernel(const __grid_constant__ AttentionParams p) {
  constexpr int kColumns = kForwardColumns<T, HeadSize, Form>;
  constexpr int kN8 = kColumns / 8;
  constexpr int kOutN8 = HeadSize / 8;
  using Columns = typename ColumnsOf<Form, kColumns>::Type;
  extern __shared__ unsigned char shared[];

  const auto& g = p.geometry;
  const unsigned row_tiles = g.padded_tokens / kRowTile, head_index = blockIdx.x / row_tiles;
  const int first_row = (blockIdx.x - head_index * row_tiles) * kRowTile;
  const int image = head_index / unsigned(g.heads), head = head_index - image * g.heads;
  const std::int64_t batch_head = head_index;
  const Lane lane;
  const int row = first_row + threadIdx.x / 32 * 16 + lane.g;  // of this lane: row and row + 8

  // Shared memory: the queries, two buffers of keys and values, the columns' tokens, the bias's
  // own.
  constexpr int kPairBytes = TilePair<T>::bytes(kColumns, HeadSize);
  unsigned char* next = aligned_shared(shared);
  const Tile<T> queries{next, kRowTile, HeadSize};
  next += Tile<T>::bytes(kRowTile, HeadSize);
  const TilePair<T> keys{next, kColumns, HeadSize};
  next += kPairBytes;
  const TilePair<T> values{next, kColumns, HeadSize};
  next += kPairBytes;
  const Columns columns(g);
  const ColumnTokens<Columns, kColumns> tokens(columns, next);
  next += ColumnTokens<Columns, kColumns>::bytes();

  const auto k_head = head_of<T>(p.k, image, head), v_head = head_of<T>(p.v, image, head);
  load_rows<HeadSize, kRowTile>(
      queries, head_of<T>(p.q, image, head), g.head_size, g.aligned,
      [&](int r) { return first_row + r < g.tokens ? first_row + r : -1; });
  BiasOf<T, kN8, Form> bias(p, batch_head, first_row, row, aligned_shared(next));

  const auto load_tile = [&](int tile) {
    const int buffer = tile % 2;
    const auto token_of = [&](int slot) { return tokens(tile, slot); };
    load_rows<HeadSize, kColumns>(keys[buffer], k_head, g.head_size, g.aligned, token_of);
    load_rows<HeadSize, kColumns>(values[buffer], v_head, g.head_size, g.aligned, token_of);
    if constexpr (kIsDistance<Form>) bias.load_columns(buffer, tile * kColumns);
    cp_async_commit();
  };

  const float scale = p.scale;
  float bias_factor = 0.0F;
  if constexpr (Form != BiasForm::none)
    bias_factor = per_head(p.gain, head, 1.0F) * (p.inside ? p.scale : 1.0F);

  OnlineSoftmax softmax;
  float out[kOutN8][4] = {};
  load_tile(0);
  const int tiles = tokens.tiles;
  for (int tile = 0; tile < tiles; ++tile) {
    const int buffer = tile % 2;
    if (tile + 1 < tiles) {
      load_tile(tile + 1);
      cp_async_wait<1>();
    } else {
      cp_async_wait<0>();
    }
    fence_proxy_async();
    __syncthreads();
    tokens.look_ahead(tile + 2);
    const auto place = columns.place(tile);

    float logits[kN8][4];
    row_product<HeadSize>(logits, queries, keys[buffer]);
    if constexpr (Form == BiasForm::direct) {
      if (place.first_row == 0) bias.begin_part(columns, place.part, bias_factor);
      bias.add_to_logits(logits, columns, place.first_row, scale, bias_factor);
    } else if constexpr (kIsDistance<Form>) {
      float b[kN8][4];
      bias.template bias<false>(b, nullptr, 0, buffer, row, tile * kColumns);
#pragma unroll
      for (int n8 = 0; n8 < kN8; ++n8)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          logits[n8][e] = logit_of(logits[n8][e], scale, b[n8][e], bias_factor);
    } else {
#pragma unroll
      for (int n8 = 0; n8 < kN8; ++n8)
#pragma unroll
        for (int e = 0; e < 4; ++e) logits[n8][e] *= scale;
    }
    if (!columns.full(tile, place)) {
#pragma unroll
      for (int n8 = 0; n8 < kN8; ++n8)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (tokens(tile, n8 * 8 + 2 * lane.t + e % 2) < 0) logits[n8][e] = -INFINITY;
    }
    softmax.update(logits, out);
    add_column_product<T>(out, logits, values[buffer]);
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
void launch_forward(const AttentionParams& p, cudaStream_t stream) {
  const std::int64_t blocks = p.geometry.batch_heads * (p.geometry.padded_tokens / kRowTile);
  launch(forward_kernel<T, HeadSize, Form>, blocks, 1, kThreads,
         forward_smem_bytes({sizeof(T), HeadSize, Form, p.vectors.width_x, p.vectors.width_y}),
         stream, p);
}

/// The kernel for a head size (padded to the next compiled one) and a form of bias.
template <class T>
void forward(const AttentionParams& p, BiasForm form, cudaStream_t stream) {
  dispatch_head_size<T>(p.geometry.head_size, [&](auto size) {
    constexpr int kSize = decltype(size)::value;
    switch (form) {
      case BiasForm::none:
        return launch_forward<T, kSize, BiasForm::none>(p, stream);
      case BiasForm::direct:
        return launch_forward<T, kSize, BiasForm::direct>(p, stream);
      case BiasForm::distance:
        return launch_forward<T, kSize, BiasForm::distance>(p, stream);
      case BiasForm::distance_pair:
        return launch_forward<T, kSize, BiasForm::distance_pair>(p, stream);
    }
  });
}

}  // namespace sape2::kernels::cuda::sm80
