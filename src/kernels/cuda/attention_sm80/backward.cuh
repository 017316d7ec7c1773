#pragma once

#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/arch/wgmma.cuh"
#include "kernels/cuda/attention_sm80/bias.cuh"
#include "kernels/cuda/attention_sm80/columns.cuh"
#include "kernels/cuda/attention_sm80/direct_bias.cuh"
#include "kernels/cuda/attention_sm80/distance_bias.cuh"
#include "kernels/cuda/attention_sm80/kernels.h"
#include "kernels/cuda/attention_sm80/smem.h"
#include "kernels/cuda/common/block_sum.cuh"
#include "kernels/cuda/common/element.cuh"
#include "kernels/cuda/common/online_softmax.cuh"
#include "kernels/cuda/common/softmax_delta.cuh"
#include "kernels/cuda/common/tile.cuh"
#include "kernels/cuda/host/launch.h"
#include "kernels/cuda/host/params.h"

/// Attention backward in two passes over recomputed tiles. With queries along the rows a block
/// gathers dq, the vectors' gradients and dgain; with keys along the rows it gathers dk, dv and,
/// for distances, the vectors' other half. Each output has one owner: no atomics, one order of
/// sums.
namespace sape2::kernels::cuda::sm80 {

template <class T, int HeadSize, BiasForm Form>
inline constexpr int kBackwardBlocks = kIsFp32<T> || HeadSize > 64 ? 1
                                       : kIsDistance<Form>         ? 2
                                                                   : 3;

/// Queries along rows meet grid columns where the bias is direct.
template <BiasForm Form, bool KeysAlongRows, int Columns>
using BackwardColumnsOf = typename ColumnsOf<KeysAlongRows ? BiasForm::none : Form, Columns>::Type;

template <class T, int HeadSize, BiasForm Form, bool KeysAlongRows>
__global__ void __launch_bounds__(kThreads, kBackwardBlocks<T, HeadSize, Form>)
    backward_kernel(const __grid_constant__ AttentionBackwardParams params) {
  constexpr int kColumns = kBackwardColumns;
  constexpr int kN8 = kColumns / 8;
  constexpr int kOutN8 = HeadSize / 8;
  constexpr bool kDirect = Form == BiasForm::direct, kDistance = kIsDistance<Form>;
  constexpr bool kDirectRows = kDirect && !KeysAlongRows;
  using Columns = BackwardColumnsOf<Form, KeysAlongRows, kColumns>;
  extern __shared__ unsigned char shared[];

  const AttentionParams& p = params.forward;
  const auto& g = p.geometry;
  const unsigned row_tiles = g.padded_tokens / kRowTile, head_index = blockIdx.x / row_tiles;
  const int first_row = (blockIdx.x - head_index * row_tiles) * kRowTile;
  const int image = head_index / unsigned(g.heads), head = head_index - image * g.heads;
  const std::int64_t batch_head = head_index;
  const Lane lane;
  const int warp_row = threadIdx.x / 32 * 16;
  const int row = first_row + warp_row + lane.g;
  // Long vectors' gradients are made 64 entries and one set at a time; only the first block of a
  // row of tiles writes the rest.
  const bool first_part = blockIdx.y == 0;
  const int set = blockIdx.y % p.vectors.sets, first_entry = blockIdx.y / p.vectors.sets * 64;

  // The tile's scores come from a·bᵀ, the weights' gradients from da·dbᵀ.
  constexpr int kPairBytes = TilePair<T>::bytes(kColumns, HeadSize);
  unsigned char* next = aligned_shared(shared);
  const Tile<T> a{next, kRowTile, HeadSize};
  next += Tile<T>::bytes(kRowTile, HeadSize);
  const Tile<T> da{next, kRowTile, HeadSize};
  next += Tile<T>::bytes(kRowTile, HeadSize);
  const TilePair<T> b{next, kColumns, HeadSize}, db{next + kPairBytes, kColumns, HeadSize};
  next += 2 * kPairBytes;
  // Where columns are queries: maximum · log2(e), 1 / sum and dout · out of each, two buffers.
  float3* const column_rows = reinterpret_cast<float3*>(next);
  float* const scratch = reinterpret_cast<float*>(next);
  next += 6 * kColumns * 4;
  const Columns columns(g);
  const ColumnTokens<Columns, kColumns> tokens(columns, next);
  next += ColumnTokens<Columns, kColumns>::bytes();

  const auto q = head_of<T>(p.q, image, head), k = head_of<T>(p.k, image, head);
  const auto v = head_of<T>(p.v, image, head), dout = head_of<T>(params.dout, image, head);
  const auto row_token = [&](int r) { return first_row + r < g.tokens ? first_row + r : -1; };
  load_rows<HeadSize, kRowTile>(a, KeysAlongRows ? k : q, g.head_size, g.aligned, row_token);
  load_rows<HeadSize, kRowTile>(da, KeysAlongRows ? v : dout, g.head_size, g.aligned, row_token);
  BiasOf<T, kN8, Form, KeysAlongRows> bias(p, batch_head, first_row, row, aligned_shared(next));

  float* const delta = params.delta + batch_head * g.tokens;
  const SoftmaxRow* const softmax = p.softmax + batch_head * g.tokens;
  // A query that is none has weights 0.
  const auto query_row = [&](int token) {
    if (token < 0) return make_float3(0.0F, 0.0F, 0.0F);
    const SoftmaxRow row_softmax = softmax[token];
    return make_float3(row_softmax.maximum * kLog2E, 1.0F / row_softmax.sum, delta[token]);
  };
  const auto load_tile = [&](int tile) {
    const int buffer = tile % 2;
    const auto token_of = [&](int slot) { return tokens(tile, slot); };
    if constexpr (KeysAlongRows)
      for (int slot = threadIdx.x; slot < kColumns; slot += kThreads)
        column_rows[buffer * kColumns + slot] = query_row(token_of(slot));
    load_rows<HeadSize, kColumns>(b[buffer], KeysAlongRows ? q : k, g.head_size, g.aligned,
                                  token_of);
    load_rows<HeadSize, kColumns>(db[buffer], KeysAlongRows ? dout : v, g.head_size, g.aligned,
                                  token_of);
    if constexpr (kDistance) bias.load_columns(buffer, tile * kColumns);
    if constexpr (kDirect && KeysAlongRows) bias.load(buffer, tile * kColumns);
    cp_async_commit();
  };
  load_tile(0);

  float3 own_rows[2];
  if constexpr (!KeysAlongRows) {
    rows_delta<T, HeadSize>(params, image, head, first_row, scratch);
    __syncthreads();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int token = row + 8 * half;
      const float own_delta = scratch[warp_row + lane.g + 8 * half];
      if (first_part && lane.t == 0 && token < g.tokens) delta[token] = own_delta;
      own_rows[half] = make_float3(0.0F, 0.0F, own_delta);
      if (token < g.tokens) {
        own_rows[half].x = softmax[token].maximum * kLog2E;
        own_rows[half].y = 1.0F / softmax[token].sum;
      }
    }
  }

  const float scale = p.scale;
  float bias_factor = 0.0F;
  if constexpr (Form != BiasForm::none)
    bias_factor = per_head(p.gain, head, 1.0F) * (p.inside ? p.scale : 1.0F);

  float with_bias = 0.0F;  // this lane's share of Σ gradient of the logit · bias
  float d_a[kOutN8][4] = {};
  float d_da[KeysAlongRows ? kOutN8 : 1][4] = {};
  [[maybe_unused]] DistanceGradient<T, kN8> centered_gradient[kDistance ? 2 : 1];
  [[maybe_unused]] DirectRowGradients<T, kN8> direct_gradient(params, batch_head, row, bias_factor);

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
    [[maybe_unused]] const auto place = columns.place(tile);

    // Logits, then weights.
    float weight[kN8][4];
    [[maybe_unused]] float inverse[kDistance ? 2 : 1][kN8][4];
    [[maybe_unused]] float distance[kDistance ? kN8 : 1][4];
    row_product<HeadSize>(weight, a, b[buffer]);
    if constexpr (kDirectRows) {
      if (place.first_row == 0) {
        bias.begin_part(columns, place.part, bias_factor);
        direct_gradient.begin_part();
      }
      bias.add_to_logits(weight, columns, place.first_row, scale, bias_factor);
    } else if constexpr (kDistance) {
      bias.template bias<true>(distance, inverse, set, buffer, row, tile * kColumns);
    }
#pragma unroll
    for (int n8 = 0; n8 < kN8; ++n8) {
      [[maybe_unused]] float bb[4];
      if constexpr (kDirect && KeysAlongRows) bias.bias(buffer, n8, bb);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int column = buffer * kColumns + n8 * 8 + 2 * lane.t + e % 2;
        float logit = weight[n8][e];
        if constexpr (Form == BiasForm::none) logit *= scale;
        if constexpr (kDirect && KeysAlongRows) logit = logit_of(logit, scale, bb[e], bias_factor);
        if constexpr (kDistance) logit = logit_of(logit, scale, distance[n8][e], bias_factor);
        const float3 query = KeysAlongRows ? column_rows[column] : own_rows[e / 2];
        weight[n8][e] = relative_weight(logit, query.x) * query.y;
      }
    }

    if constexpr (!KeysAlongRows) {
      if (!columns.full(tile, place)) {
#pragma unroll
        for (int n8 = 0; n8 < kN8; ++n8)
#pragma unroll
          for (int e = 0; e < 4; ++e)
            if (tokens(tile, n8 * 8 + 2 * lane.t + e % 2) < 0) weight[n8][e] = 0.0F;
      }
    }

    // The logits' gradients.
    float gradient[kN8][4];
    row_product<HeadSize>(gradient, da, db[buffer]);
    if constexpr (KeysAlongRows) add_column_product<T>(d_da, weight, db[buffer]);
#pragma unroll
    for (int n8 = 0; n8 < kN8; ++n8)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int column = buffer * kColumns + n8 * 8 + 2 * lane.t + e % 2;
        const float mean = KeysAlongRows ? column_rows[column].z : own_rows[e / 2].z;
        gradient[n8][e] = weight[n8][e] * (gradient[n8][e] - mean);
        if constexpr (kDistance) gradient[n8][e] = within_range<T>(gradient[n8][e]);
        if constexpr (kDistance && !KeysAlongRows) with_bias += gradient[n8][e] * distance[n8][e];
      }
    add_column_product<T>(d_a, gradient, b[buffer]);

    if constexpr (kDirectRows) {
      with_bias += direct_gradient.add(columns, place, gradient, bias.y);
      if (columns.ends_part(tile, place))
        with_bias += direct_gradient.end_part(columns, place.part, bias.x);
    }
    if constexpr (kDistance) {
#pragma unroll
      for (int axis = 0; axis < 2; ++axis) {
#pragma unroll
        for (int n8 = 0; n8 < kN8; ++n8)
#pragma unroll
          for (int e = 0; e < 4; ++e)
            inverse[axis][n8][e] =
                within_range<T>(inverse[axis][n8][e] * (gradient[n8][e] * bias_factor));
        centered_gradient[axis].add(bias.centered(set, axis), buffer, inverse[axis], first_entry);
      }
    }
    __syncthreads();
  }

  if constexpr (kDistance) {
#pragma unroll
    for (int axis = 0; axis < 2; ++axis) {
      const int width = axis ? p.vectors.width_y : p.vectors.width_x;
      float* const to = static_cast<float*>(axis ? params.dy : params.dx) +
                        ((set * g.batch_heads + batch_head) * g.padded_tokens + row) * width;
      centered_gradient[axis].finish(bias.centered(set, axis), first_entry,
                                     [&](int entry, int half, float value) {
                                       float& place = to[8 * half * width + entry];
                                       place = KeysAlongRows ? place + value : value;
                                     });
    }
  }
  if (!first_part) return;

  const auto store = [&](const View& view, const auto& result, float factor) {
    if (view.data == nullptr) return;
    const auto to = head_of<T>(view, image, head);
#pragma unroll
    for (int half = 0; half < 2; ++half)
      if (row + 8 * half < g.tokens)
        store_row(to.row(row + 8 * half), result, half, factor, g.head_size, g.aligned);
  };
  store(KeysAlongRows ? params.dk : params.dq, d_a, p.scale);
  if constexpr (KeysAlongRows) store(params.dv, d_da, 1.0F);
  if constexpr (!KeysAlongRows && Form != BiasForm::none) {
    if (params.dgain != nullptr) {
      const float sum = block_sum(with_bias, scratch);
      if (threadIdx.x == 0) params.dgain[blockIdx.x] = sum * (p.inside ? p.scale : 1.0F);
    }
  }
}

template <class T, int HeadSize, BiasForm Form>
void launch_backward(const AttentionBackwardParams& p, cudaStream_t stream) {
  const auto& g = p.forward.geometry;
  const auto& v = p.forward.vectors;
  const std::int64_t blocks = g.batch_heads * (g.padded_tokens / kRowTile);
  const int width = v.width_x > v.width_y ? v.width_x : v.width_y;
  const int parts = kIsDistance<Form> ? v.sets * ((width + 63) / 64) : 1;
  const SmemSizes sizes{sizeof(T), HeadSize, Form, v.width_x, v.width_y};
  launch(backward_kernel<T, HeadSize, Form, false>, blocks, parts, kThreads,
         backward_smem_bytes(sizes, false), stream, p);
  launch(backward_kernel<T, HeadSize, Form, true>, blocks, parts, kThreads,
         backward_smem_bytes(sizes, true), stream, p);
}

template <class T>
void backward(const AttentionBackwardParams& p, BiasForm form, cudaStream_t stream,
              const BackwardContinuation& continuation) {
  dispatch_head_size<T>(p.forward.geometry.head_size, [&](auto size) {
    constexpr int kSize = decltype(size)::value;
    switch (form) {
      case BiasForm::none:
        return launch_backward<T, kSize, BiasForm::none>(p, stream);
      case BiasForm::direct:
        return launch_backward<T, kSize, BiasForm::direct>(p, stream);
      case BiasForm::distance:
        return launch_backward<T, kSize, BiasForm::distance>(p, stream);
      case BiasForm::distance_pair:
        return launch_backward<T, kSize, BiasForm::distance_pair>(p, stream);
    }
  });
  const bool distance = form == BiasForm::distance || form == BiasForm::distance_pair;
  if (continuation.from) continuation.from({.fp32 = distance, .before_keys = false});
}

}  // namespace sape2::kernels::cuda::sm80
