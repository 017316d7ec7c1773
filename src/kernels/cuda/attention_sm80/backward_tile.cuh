#pragma once

#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/arch/wgmma.cuh"
#include "kernels/cuda/attention_sm80/bias.cuh"
#include "kernels/cuda/attention_sm80/block.cuh"
#include "kernels/cuda/attention_sm80/columns.cuh"
#include "kernels/cuda/attention_sm80/direct_bias.cuh"
#include "kernels/cuda/attention_sm80/distance_bias.cuh"
#include "kernels/cuda/attention_sm80/smem.h"
#include "kernels/cuda/common/block_sum.cuh"
#include "kernels/cuda/common/element.cuh"
#include "kernels/cuda/common/online_softmax.cuh"
#include "kernels/cuda/common/tile.cuh"
#include "kernels/cuda/host/params.h"

/// The steps of attention backward (backward.cuh), and where they find what in shared memory.
namespace sape2::kernels::cuda::sm80 {

/// Queries along rows meet grid columns where the bias is direct.
template <BiasForm Form, bool KeysAlongRows, int Columns>
using BackwardColumnsOf = typename ColumnsOf<KeysAlongRows ? BiasForm::none : Form, Columns>::Type;

/// What lies where in a block's shared memory, in bytes from where it is aligned. The tile's scores
/// come from a·bᵀ, the weights' gradients from da·dbᵀ.
template <class T, int HeadSize, BiasForm Form, bool KeysAlongRows>
struct BackwardSmem {
  static constexpr int kColumns = kBackwardColumns;
  static constexpr int kPairBytes = TilePair<T>::bytes(kColumns, HeadSize);
  static constexpr int kDa = Tile<T>::bytes(kRowTile, HeadSize), kB = 2 * kDa;
  static constexpr int kDb = kB + kPairBytes, kColumnRows = kDb + kPairBytes;
  static constexpr int kTokens = kColumnRows + 2 * kColumns * int(sizeof(float3));
  static constexpr int kBias =
      kTokens + column_token_bytes(Form == BiasForm::direct && !KeysAlongRows, kColumns);
  static_assert(kBias == backward_tiles_bytes(sizeof(T), HeadSize, Form, KeysAlongRows));
  unsigned char* memory;

  __device__ Tile<T> a() const { return {memory, kRowTile, HeadSize}; }
  __device__ Tile<T> da() const { return {memory + kDa, kRowTile, HeadSize}; }
  __device__ TilePair<T> b() const { return {memory + kB, kColumns, HeadSize}; }
  __device__ TilePair<T> db() const { return {memory + kDb, kColumns, HeadSize}; }
  /// Where columns are queries: maximum · log2(e), 1 / sum and dout · out of each, two buffers.
  __device__ float3* column_rows() const { return reinterpret_cast<float3*>(memory + kColumnRows); }
  /// Where they are keys, in the same place.
  __device__ float* scratch() const { return reinterpret_cast<float*>(memory + kColumnRows); }
  __device__ unsigned char* tokens() const { return memory + kTokens; }
  __device__ unsigned char* bias() const { return aligned_shared(memory + kBias); }
};

/// What a block reads of its head; delta is also written.
template <class T>
struct BackwardInputs {
  HeadView<const T> q, k, v, dout;
  float* delta;
  const SoftmaxRow* softmax;

  __device__ BackwardInputs(const AttentionBackwardParams& params, const BlockRows& block)
      : q(head_of<T>(params.forward.q, block.image, block.head)),
        k(head_of<T>(params.forward.k, block.image, block.head)),
        v(head_of<T>(params.forward.v, block.image, block.head)),
        dout(head_of<T>(params.dout, block.image, block.head)),
        delta(params.delta + block.batch_head * params.forward.geometry.tokens),
        softmax(params.forward.softmax + block.batch_head * params.forward.geometry.tokens) {}
};

/// The steps of a tile, on numbers that the kernel has in registers.
template <class T, int HeadSize, BiasForm Form, bool KeysAlongRows>
struct BackwardTile {
  static constexpr int kColumns = kBackwardColumns, kN8 = kColumns / 8;
  static constexpr bool kDirect = Form == BiasForm::direct, kDistance = kIsDistance<Form>;
  static constexpr bool kDirectRows = kDirect && !KeysAlongRows;
  using Columns = BackwardColumnsOf<Form, KeysAlongRows, kColumns>;
  using Place = typename Columns::Place;
  using Numbers = float[kN8][4];
  using Distance = float[kDistance ? kN8 : 1][4];
  using Inverse = float[kDistance ? 2 : 1][kN8][4];
  const AttentionBackwardParams& params;
  const BlockRows& block;
  const Lane& lane;
  const Columns& columns;
  const ColumnTokens<Columns, kColumns>& tokens;
  const BackwardInputs<T>& in;
  const BackwardSmem<T, HeadSize, Form, KeysAlongRows>& smem;
  float3 (&own_rows)[2];  // where rows are queries, as column_rows
  BiasOf<T, kN8, Form, KeysAlongRows>& bias;
  const float &scale, &bias_factor;
  const int &set, &first_entry;
  float& with_bias;
  DistanceGradient<T, kN8> (&centered_gradient)[kDistance ? 2 : 1];
  DirectRowGradients<T, kN8>& direct_gradient;

  /// A query that is none has weights 0.
  __device__ float3 query_row(int token) const {
    if (token < 0) return make_float3(0.0F, 0.0F, 0.0F);
    const SoftmaxRow row_softmax = in.softmax[token];
    return make_float3(row_softmax.maximum * kLog2E, 1.0F / row_softmax.sum, in.delta[token]);
  }
  __device__ void load_rows_of_block() const {
    const Geometry& g = params.forward.geometry;
    const int first_row = block.first_row;
    const auto token_of = [&](int r) { return first_row + r < g.tokens ? first_row + r : -1; };
    load_rows<HeadSize, kRowTile>(smem.a(), KeysAlongRows ? in.k : in.q, g.head_size, g.aligned,
                                  token_of);
    load_rows<HeadSize, kRowTile>(smem.da(), KeysAlongRows ? in.v : in.dout, g.head_size, g.aligned,
                                  token_of);
  }
  __device__ void load(int tile) const {
    const Geometry& g = params.forward.geometry;
    const int buffer = tile % 2;
    const auto token_of = [&](int slot) { return tokens(tile, slot); };
    if constexpr (KeysAlongRows)
      for (int slot = threadIdx.x; slot < kColumns; slot += kThreads)
        smem.column_rows()[buffer * kColumns + slot] = query_row(token_of(slot));
    load_rows<HeadSize, kColumns>(smem.b()[buffer], KeysAlongRows ? in.q : in.k, g.head_size,
                                  g.aligned, token_of);
    load_rows<HeadSize, kColumns>(smem.db()[buffer], KeysAlongRows ? in.dout : in.v, g.head_size,
                                  g.aligned, token_of);
    if constexpr (kDistance) bias.load_columns(buffer, tile * kColumns);
    if constexpr (kDirect && KeysAlongRows) bias.load(buffer, tile * kColumns);
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
  /// dout · out of the block's rows is in `deltas`; the next pass, too, will need it.
  __device__ void read_own_rows(const float* deltas, bool first_part) const {
    const int all = params.forward.geometry.tokens;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int token = block.row + 8 * half;
      const float own_delta = deltas[token - block.first_row];
      if (first_part && lane.t == 0 && token < all) in.delta[token] = own_delta;
      own_rows[half] = make_float3(0.0F, 0.0F, own_delta);
      if (token < all) {
        own_rows[half].x = in.softmax[token].maximum * kLog2E;
        own_rows[half].y = 1.0F / in.softmax[token].sum;
      }
    }
  }
  /// What belongs to the tile as a whole: queries' direct bias is added to scores, distances are
  /// made.
  __device__ void prepare_bias(Numbers& weight, Distance& distance, Inverse& inverse, int tile,
                               const Place& place) const {
    if constexpr (kDirectRows) {
      if (place.first_row == 0) {
        bias.begin_part(columns, place.part, bias_factor);
        direct_gradient.begin_part();
      }
      bias.add_to_logits(weight, columns, place.first_row, scale, bias_factor);
    } else if constexpr (kDistance) {
      bias.template bias<true>(distance, inverse, set, tile % 2, block.row, tile * kColumns);
    }
  }
  /// Logits, then weights.
  __device__ void make_weights(Numbers& weight, const Distance& distance, int buffer) const {
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
        const float3 query = KeysAlongRows ? smem.column_rows()[column] : own_rows[e / 2];
        weight[n8][e] = relative_weight(logit, query.x) * query.y;
      }
    }
  }
  /// Keys that are no tokens; queries that are none have weights 0 already.
  __device__ void mask(Numbers& weight, int tile, const Place& place) const {
    if (columns.full(tile, place)) return;
#pragma unroll
    for (int n8 = 0; n8 < kN8; ++n8)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (tokens(tile, n8 * 8 + 2 * lane.t + e % 2) < 0) weight[n8][e] = 0.0F;
  }
  /// The weights' gradients become the logits'.
  __device__ void make_gradients(Numbers& gradient, const Numbers& weight, const Distance& distance,
                                 int buffer) const {
#pragma unroll
    for (int n8 = 0; n8 < kN8; ++n8)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int column = buffer * kColumns + n8 * 8 + 2 * lane.t + e % 2;
        const float mean = KeysAlongRows ? smem.column_rows()[column].z : own_rows[e / 2].z;
        gradient[n8][e] = weight[n8][e] * (gradient[n8][e] - mean);
        if constexpr (kDistance) gradient[n8][e] = within_range<T>(gradient[n8][e]);
        if constexpr (kDistance && !KeysAlongRows) with_bias += gradient[n8][e] * distance[n8][e];
      }
  }
  /// The tile's part of the vectors' gradients.
  __device__ void add_to_vectors(const Numbers& gradient, Inverse& inverse, int tile,
                                 const Place& place) const {
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
        centered_gradient[axis].add(bias.centered(set, axis), tile % 2, inverse[axis], first_entry);
      }
    }
  }
  /// Of the distance form: queries' part, to which the next pass adds that of keys.
  __device__ void store_vectors() const {
    const AttentionParams& p = params.forward;
    const Geometry& g = p.geometry;
#pragma unroll
    for (int axis = 0; axis < 2; ++axis) {
      const int width = axis ? p.vectors.width_y : p.vectors.width_x;
      float* const to =
          static_cast<float*>(axis ? params.dy : params.dx) +
          ((set * g.batch_heads + block.batch_head) * g.padded_tokens + block.row) * width;
      centered_gradient[axis].finish(bias.centered(set, axis), first_entry,
                                     [&](int entry, int half, float value) {
                                       float& place = to[8 * half * width + entry];
                                       place = KeysAlongRows ? place + value : value;
                                     });
    }
  }
};

/// The block's part of the gain's gradient, where it is wanted.
__device__ inline void store_gain(const AttentionBackwardParams& params, float with_bias,
                                  float* scratch) {
  if (params.dgain == nullptr) return;
  const AttentionParams& p = params.forward;
  const float sum = block_sum(with_bias, scratch);
  if (threadIdx.x == 0) params.dgain[blockIdx.x] = sum * (p.inside ? p.scale : 1.0F);
}

/// This lane's rows of a gradient, where it is wanted.
template <class T, int N8>
__device__ void store_rows(const View& view, const Geometry& g, const BlockRows& block,
                           const float (&result)[N8][4], float factor) {
  if (view.data == nullptr) return;
  const auto to = head_of<T>(view, block.image, block.head);
#pragma unroll
  for (int half = 0; half < 2; ++half)
    if (block.row + 8 * half < g.tokens)
      store_row(to.row(block.row + 8 * half), result, half, factor, g.head_size, g.aligned);
}

}  // namespace sape2::kernels::cuda::sm80
