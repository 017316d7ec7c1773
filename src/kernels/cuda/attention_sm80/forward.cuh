#pragma once

#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/arch/wgmma.cuh"
#include "kernels/cuda/attention_sm80/bias.cuh"
#include "kernels/cuda/attention_sm80/block.cuh"
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

/// What lies where in a block's shared memory, in bytes from where it is aligned.
template <class T, int HeadSize, BiasForm Form>
struct ForwardSmem {
  static constexpr int kColumns = kForwardColumns<T, HeadSize, Form>;
  static constexpr int kPairBytes = TilePair<T>::bytes(kColumns, HeadSize);
  static constexpr int kKeys = Tile<T>::bytes(kRowTile, HeadSize), kValues = kKeys + kPairBytes;
  static constexpr int kTokens = kValues + kPairBytes;
  static constexpr int kBias = kTokens + column_token_bytes(Form == BiasForm::direct, kColumns);
  static_assert(kBias == forward_tiles_bytes(sizeof(T), HeadSize, Form));
  unsigned char* memory;

  __device__ Tile<T> queries() const { return {memory, kRowTile, HeadSize}; }
  __device__ TilePair<T> keys() const { return {memory + kKeys, kColumns, HeadSize}; }
  __device__ TilePair<T> values() const { return {memory + kValues, kColumns, HeadSize}; }
  __device__ unsigned char* tokens() const { return memory + kTokens; }
  __device__ unsigned char* bias() const { return aligned_shared(memory + kBias); }
};

/// The steps of a tile of keys.
template <class T, int HeadSize, BiasForm Form>
struct ForwardTile {
  static constexpr int kColumns = kForwardColumns<T, HeadSize, Form>, kN8 = kColumns / 8;
  using Columns = typename ColumnsOf<Form, kColumns>::Type;
  using Logits = float[kN8][4];
  const AttentionParams& p;
  const BlockRows& block;
  const Lane& lane;
  const Columns& columns;
  const ColumnTokens<Columns, kColumns>& tokens;
  const HeadView<const T>&k_head, &v_head;
  const TilePair<T>&keys, &values;
  BiasOf<T, kN8, Form>& bias;
  const float &scale, &bias_factor;

  __device__ void load(int tile) const {
    const Geometry& g = p.geometry;
    const int buffer = tile % 2;
    const auto token_of = [&](int slot) { return tokens(tile, slot); };
    load_rows<HeadSize, kColumns>(keys[buffer], k_head, g.head_size, g.aligned, token_of);
    load_rows<HeadSize, kColumns>(values[buffer], v_head, g.head_size, g.aligned, token_of);
    if constexpr (kIsDistance<Form>) bias.load_columns(buffer, tile * kColumns);
    cp_async_commit();
  }
  /// Starts the next one and waits for this one.
  __device__ void finish_load(int tile) const {
    if (tile + 1 < tokens.tiles) {
      load(tile + 1);
      cp_async_wait<1>();
    } else {
      cp_async_wait<0>();
    }
    fence_proxy_async();
    __syncthreads();
    tokens.look_ahead(tile + 2);
  }
  /// Scores become logits.
  __device__ void add_bias(Logits& logits, int tile, const typename Columns::Place& place) const {
    if constexpr (Form == BiasForm::direct) {
      if (place.first_row == 0) bias.begin_part(columns, place.part, bias_factor);
      bias.add_to_logits(logits, columns, place.first_row, scale, bias_factor);
    } else if constexpr (kIsDistance<Form>) {
      float b[kN8][4];
      bias.template bias<false>(b, nullptr, 0, tile % 2, block.row, tile * kColumns);
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
  }
  /// Columns that are no tokens.
  __device__ void mask(Logits& logits, int tile, const typename Columns::Place& place) const {
    if (columns.full(tile, place)) return;
#pragma unroll
    for (int n8 = 0; n8 < kN8; ++n8)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (tokens(tile, n8 * 8 + 2 * lane.t + e % 2) < 0) logits[n8][e] = -INFINITY;
  }
};

/// The result of this lane's rows, and what backward needs of their softmax.
template <class T, int N8>
__device__ void store_result(const AttentionParams& p, const BlockRows& block, const Lane& lane,
                             const OnlineSoftmax& softmax, const float (&out)[N8][4]) {
  const Geometry& g = p.geometry;
  const auto out_head = head_of<T>(p.out, block.image, block.head);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int token = block.row + 8 * half;
    if (token >= g.tokens) continue;
    if (lane.t == 0 && p.softmax != nullptr)
      p.softmax[block.batch_head * g.tokens + token] = {softmax.maximum[half], softmax.sum[half]};
    store_row(out_head.row(token), out, half, 1.0F / softmax.sum[half], g.head_size, g.aligned);
  }
}

template <class T, int HeadSize, BiasForm Form>
__global__ void __launch_bounds__(kThreads, kForwardBlocks<T, HeadSize>)
    forward_kernel(const __grid_constant__ AttentionParams p) {
  using Steps = ForwardTile<T, HeadSize, Form>;
  constexpr int kColumns = Steps::kColumns;
  extern __shared__ unsigned char shared[];
  const auto& g = p.geometry;
  const Lane lane;
  const BlockRows block(g, lane);

  const ForwardSmem<T, HeadSize, Form> smem{aligned_shared(shared)};
  const Tile<T> queries = smem.queries();
  const TilePair<T> keys = smem.keys(), values = smem.values();
  const typename Steps::Columns columns(g);
  const ColumnTokens<typename Steps::Columns, kColumns> tokens(columns, smem.tokens());

  const auto k_head = head_of<T>(p.k, block.image, block.head);
  const auto v_head = head_of<T>(p.v, block.image, block.head);
  const int first_row = block.first_row;
  load_rows<HeadSize, kRowTile>(
      queries, head_of<T>(p.q, block.image, block.head), g.head_size, g.aligned,
      [&](int r) { return first_row + r < g.tokens ? first_row + r : -1; });
  BiasOf<T, Steps::kN8, Form> bias(p, block.batch_head, first_row, block.row, smem.bias());
  const float scale = p.scale;
  float bias_factor = 0.0F;
  if constexpr (Form != BiasForm::none)
    bias_factor = per_head(p.gain, block.head, 1.0F) * (p.inside ? p.scale : 1.0F);
  const Steps steps{p,      block, lane,   columns, tokens, k_head,
                    v_head, keys,  values, bias,    scale,  bias_factor};

  OnlineSoftmax softmax;
  float out[HeadSize / 8][4] = {};
  steps.load(0);
  const int tiles = tokens.tiles;
  for (int tile = 0; tile < tiles; ++tile) {
    steps.finish_load(tile);
    const auto place = columns.place(tile);
    float logits[Steps::kN8][4];
    row_product<HeadSize>(logits, queries, keys[tile % 2]);
    steps.add_bias(logits, tile, place);
    steps.mask(logits, tile, place);
    softmax.update(logits, out);
    add_column_product<T>(out, logits, values[tile % 2]);
    __syncthreads();
  }
  softmax.finish();
  store_result<T>(p, block, lane, softmax, out);
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
