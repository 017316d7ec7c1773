#pragma once

#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/common/element.cuh"
#include "kernels/cuda/common/online_softmax.cuh"
#include "kernels/cuda/common/softmax_delta.cuh"
#include "kernels/cuda/common/tile.cuh"
#include "kernels/cuda/cope/gradients.cuh"
#include "kernels/cuda/cope/kernels.h"
#include "kernels/cuda/cope/smem.h"
#include "kernels/cuda/cope/steps.cuh"
#include "kernels/cuda/host/launch.h"
#include "kernels/cuda/host/params.h"

/// A block takes one tile of a head's queries after another and, of each, all keys from the first
/// to the last: gradients of positions are sums from the start. What lies behind a tile of keys is
/// found beforehand, from the last to the first. A block adds up its own dk, dv and table
/// gradients, so there are no atomics and one order of sums.
namespace sape2::kernels::cuda::cope {

/// What lies where in shared memory, behind its alignment; table values come last, where they fit.
template <class T, int HeadSize>
struct BackwardSmem {
  static constexpr bool kTableApart = table_is_apart(sizeof(T));
  static constexpr int kTileBytes = Tile<T>::bytes(kRowTile, HeadSize);
  static constexpr int kTable = 4 * kTileBytes, kWeights = kTable + (kTableApart ? kTileBytes : 0);
  static constexpr int kExchange = kWeights + Tile<T>::bytes(kRowTile, kRowTile);
  static constexpr int kDelta = kExchange + exchange_bytes(sizeof(T), kTileBytes);
  static constexpr int kValues = kDelta + kRowTile * 4;
  static_assert(kSharedAlignment + kValues == backward_smem_bytes<sizeof(T)>(HeadSize));
  unsigned char* memory;

  __device__ Tile<T> queries() const { return {memory, kRowTile, HeadSize}; }
  __device__ Tile<T> douts() const { return {memory + kTileBytes, kRowTile, HeadSize}; }
  __device__ Tile<T> keys() const { return {memory + 2 * kTileBytes, kRowTile, HeadSize}; }
  __device__ Tile<T> contents() const { return {memory + 3 * kTileBytes, kRowTile, HeadSize}; }
  __device__ Tile<T> weights() const { return {memory + kWeights, kRowTile, kRowTile}; }
  // One after another in one place; in float32 the table, too.
  __device__ float2* steps() const { return reinterpret_cast<float2*>(memory + kExchange); }
  __device__ Tile<T> dlogits() const { return {memory + kExchange, kRowTile, kRowTile}; }
  __device__ Tile<T> table() const {
    return {memory + (kTableApart ? kTable : kExchange), kRowTile, HeadSize};
  }
  __device__ float* delta() const { return reinterpret_cast<float*>(memory + kDelta); }
  __device__ float* values() const { return reinterpret_cast<float*>(memory + kValues); }
};

/// The steps of a tile of queries, on what the kernel has in registers and in shared memory.
template <class T, int HeadSize>
struct BackwardTile {
  static constexpr int kOutN8 = HeadSize / 8;
  const BackwardParams& params;
  const AttentionParams& p;
  const Params& cope;
  const Geometry& g;
  const int& tiles;  // of keys
  const Lane& lane;
  const int &warp_row, &own_row;
  const BackwardSmem<T, HeadSize>& smem;
  float *const &values, *const &dvalues, *const &later_of;
  const bool& resident;
  const std::int64_t& head_index;
  const int &image, &head;
  const int& first_row;  // of the queries
  const bool &first_queries, &last_queries;

  __device__ void load(const Tile<T>& tile, const ConstView& from, int first) const {
    load_rows<HeadSize, kRowTile>(tile, head_of<T>(from, image, head), g.head_size, g.aligned,
                                  [&](int r) { return first + r < g.tokens ? first + r : -1; });
  }
  __device__ static void arrived() {
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads();
  }
  __device__ void load_queries() const {
    load(smem.queries(), p.q, first_row);
    load(smem.douts(), params.attention.dout, first_row);
    if (tiles == 1) {
      load(smem.keys(), p.k, 0);
      load(smem.contents(), p.v, 0);
    }
  }
  /// What softmax was in the lane's two rows; the mean of the weights' gradients only where there
  /// are several tiles of keys.
  __device__ void read_softmax(float (&scaled_maximum)[2], float (&inverse_sum)[2],
                               float (&mean)[2]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int token = first_row + own_row + 8 * half;
      if (tiles > 1) mean[half] = smem.delta()[own_row + 8 * half];
      if (token >= g.tokens) continue;
      const SoftmaxRow softmax = p.softmax[head_index * g.tokens + token];
      scaled_maximum[half] = softmax.maximum * kLog2E;
      inverse_sum[half] = 1.0F / softmax.sum;
    }
  }
  __device__ void keep_later(const float (&later)[2], int tile) const {
#pragma unroll
    for (int half = 0; half < 2; ++half)
      if (lane.t == 0) later_of[tile * kRowTile + own_row + 8 * half] = later[half];
  }
  __device__ void read_later(float (&later)[2], int tile) const {
    later[0] = later_of[tile * kRowTile + own_row];
    later[1] = later_of[tile * kRowTile + own_row + 8];
  }
  __device__ void clear_dvalues() const {
    for (int i = threadIdx.x % 32; i < 16 * cope.pitch; i += 32)
      dvalues[warp_row * cope.pitch + i] = 0.0F;
    __syncwarp();
  }
  __device__ void load_keys(int tile) const {
    load(smem.keys(), p.k, tile * kRowTile);
    load(smem.contents(), p.v, tile * kRowTile);
    arrived();
  }
  /// Scores and gates of the tile of keys that is in shared memory, `keys` of them real.
  __device__ void make_scores(CopeN8& score, CopeN8& gate, int keys) const {
    add_product_with_rows(score, smem.queries(), warp_row, smem.keys(), HeadSize);
    make_gates(gate, score, cope.gate_scale, keys);
  }
  /// `later`: the sum of the gates behind the tile.
  __device__ static void make_positions(CopeN8& position, const CopeN8& gate, float (&later)[2]) {
    for_each_n8([&](int n8, int e) { position[n8][e] = gate[n8][e]; });
    running_sums<true>(position, later);
  }
  __device__ float2& step(int n8, int e) const {
    return smem.steps()[(own_row + e / 2 * 8) * kStepPitch + n8 * 8 + 2 * lane.t + e % 2];
  }
  /// Scores become weights, positions the bias's slopes there.
  __device__ void make_weights(CopeN8& weight, CopeN8& slope, const CopeN8& position, int valid,
                               float last_position, const float (&scaled_maximum)[2],
                               const float (&inverse_sum)[2]) const {
    for_each_n8([&](int n8, int e) {
      const float at = fminf(position[n8][e], last_position);
      const Interpolated bias(values + (own_row + e / 2 * 8) * cope.pitch, at);
      step(n8, e).x = at;
      slope[n8][e] = bias.slope;
      const float logit = weight[n8][e] * p.scale + bias.value * cope.bias_factor;
      const float relative = relative_weight(logit, scaled_maximum[e / 2]) * inverse_sum[e / 2];
      weight[n8][e] = n8 * 8 + 2 * lane.t + e % 2 < valid ? relative : 0.0F;
    });
  }
  /// The weights' gradients become the logits', slopes the positions' gradients.
  __device__ void softmax_backward(CopeN8& gradient, CopeN8& slope, const CopeN8& weight,
                                   float (&mean)[2]) const {
    if (tiles == 1) {
      // All weights are here: where one key takes them all, its gradient is exactly 0.
      for_each_n8(
          [&](int n8, int e) { mean[e / 2] = fmaf(weight[n8][e], gradient[n8][e], mean[e / 2]); });
      mean[0] = row_sum(mean[0]);
      mean[1] = row_sum(mean[1]);
    }
    for_each_n8([&](int n8, int e) {
      gradient[n8][e] = weight[n8][e] * (gradient[n8][e] - mean[e / 2]);
      const float dbias = gradient[n8][e] * cope.bias_factor;
      step(n8, e).y = dbias;
      slope[n8][e] *= dbias;
    });
  }
  /// The logits' gradients become the scores', with those of the gates. `dgate` comes as the
  /// positions' gradients, which are added up from the first key on; `earlier`: sums of the tiles
  /// before.
  __device__ void gates_backward(CopeN8& gradient, const CopeN8& gate, CopeN8& dgate,
                                 float (&earlier)[2]) const {
    running_sums<false>(dgate, earlier);
    for_each_n8([&](int n8, int e) {
      const float open = gate[n8][e] * (1.0F - gate[n8][e]);
      gradient[n8][e] =
          params.logit_part * gradient[n8][e] + params.gate_part * open * dgate[n8][e];
    });
  }
  /// Adds the tile's steps to the gradients of table values.
  __device__ void add_to_dvalues() const {
    if (tiles == 1) clear_dvalues();
    add_steps(dvalues, cope.pitch, smem.steps(), tiles == 1);
  }
  /// Keys along the rows, 16 of them a warp: adds squareᵀ · with to a block's sums, and stores them
  /// when they are complete.
  __device__ void add_keys(const Tile<T>& square, const Tile<T>& with, float* sums,
                           const View& view, float factor, int tile) const {
    float x[kOutN8][4] = {};
    add_transposed_product(x, square, warp_row, with);
    const int key = tile * kRowTile + own_row;
    const bool whole = last_queries && params.chunks == 1;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float* const row =
          sums + (std::int64_t(blockIdx.x) * g.padded_tokens + key + 8 * half) * HeadSize;
      if (!first_queries) add_sums(x, half, row, HeadSize);
      if (!whole) keep_sums(row, x, half, HeadSize);
      if (whole && view.data != nullptr && key + 8 * half < g.tokens)
        store_row(head_of<T>(view, image, head).row(key + 8 * half), x, half, factor, g.head_size,
                  g.aligned);
    }
  }
  /// The gradients of the table values of 64 rows of the table, `first` …
  __device__ void read_dvalues(CopeN8& part, int first) const {
    for_each_n8([&](int n8, int e) {
      const int column = first + n8 * 8 + 2 * lane.t + e % 2;
      part[n8][e] =
          column < cope.positions ? dvalues[(own_row + e / 2 * 8) * cope.pitch + column] : 0.0F;
    });
  }
  /// The gradient of table rows `first` …, from those of their values: adds a block's sums, where
  /// there are some, and keeps them.
  __device__ void add_to_table(int first, bool table_begun) const {
    float dtable[kOutN8][4] = {};
    add_transposed_product(dtable, smem.weights(), warp_row, smem.queries());
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first + own_row + 8 * half;
      if (row >= cope.positions) continue;
      float* const sums =
          params.dtable + (std::int64_t(blockIdx.x) * cope.positions + row) * g.head_size;
      if (table_begun) add_sums(dtable, half, sums, g.head_size);
      keep_sums(sums, dtable, half, g.head_size);
    }
  }
  /// By the factor that the scores' gradients were left without.
  __device__ void scale(float (&dq)[kOutN8][4]) const {
#pragma unroll
    for (int n8 = 0; n8 < kOutN8; ++n8)
#pragma unroll
      for (int e = 0; e < 4; ++e) dq[n8][e] *= params.common;
  }
  __device__ void store_dq(const float (&dq)[kOutN8][4]) const {
    const auto dq_head = head_of<T>(params.attention.dq, image, head);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int token = first_row + own_row + 8 * half;
      if (token < g.tokens) store_row(dq_head.row(token), dq, half, 1.0F, g.head_size, g.aligned);
    }
  }
};

template <class T, int HeadSize>
__global__ void __launch_bounds__(kThreads, kIsFp32<T> || HeadSize > 64 ? 1 : 2)
    backward_kernel(const __grid_constant__ BackwardParams params) {
  constexpr int kOutN8 = HeadSize / 8;
  extern __shared__ unsigned char shared[];
  const AttentionParams& p = params.attention.forward;
  const Params& cope = params.cope;
  const auto& g = p.geometry;
  const int tiles = g.padded_tokens / kRowTile;
  const Lane lane;
  const int warp_row = threadIdx.x / 32 * 16, own_row = warp_row + lane.g;

  const BackwardSmem<T, HeadSize> smem{aligned_shared(shared)};
  const std::int64_t block_values = std::int64_t(blockIdx.x) * kRowTile * cope.pitch;
  float* const values = cope.values == nullptr ? smem.values() : cope.values + block_values;
  // With one tile of keys the values have been read when their gradients are needed.
  float* const dvalues = tiles == 1                  ? values
                         : params.dvalues == nullptr ? values + kRowTile * cope.pitch
                                                     : params.dvalues + block_values;
  float* const later_of = params.later + std::int64_t(blockIdx.x) * tiles * kRowTile;
  const auto last_position = static_cast<float>(cope.positions - 1);

  const bool resident = smem.kTableApart && cope.positions <= kRowTile;
  if (resident) load_table<T, HeadSize>(smem.table(), cope, 0, g.head_size);
  bool table_begun = false;
  const std::int64_t units = g.batch_heads * params.chunks;
  for (std::int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const std::int64_t head_index = unit / params.chunks;
    const int chunk = static_cast<int>(unit - head_index * params.chunks);
    const int image = static_cast<int>(head_index / g.heads);
    const int head = static_cast<int>(head_index - std::int64_t(image) * g.heads);

    for (int query_tile = chunk; query_tile < tiles; query_tile += params.chunks) {
      const int first_row = query_tile * kRowTile;
      const bool first_queries = query_tile == chunk;
      const bool last_queries = query_tile + params.chunks >= tiles;
      const BackwardTile<T, HeadSize> t{params,  p,         cope,          g,           tiles,
                                        lane,    warp_row,  own_row,       smem,        values,
                                        dvalues, later_of,  resident,      head_index,  image,
                                        head,    first_row, first_queries, last_queries};
      __syncthreads();
      t.load_queries();
      if (tiles > 1)
        rows_delta<T, HeadSize>(params.attention, image, head, first_row, smem.delta());
      t.arrived();
      float scaled_maximum[2] = {}, inverse_sum[2] = {}, mean[2] = {};
      t.read_softmax(scaled_maximum, inverse_sum, mean);
      make_values<T, HeadSize>(values, cope, smem.queries(), smem.table(), resident, g.head_size);
      if (tiles > 1) {
        float later[2] = {};
        for (int tile = tiles - 1; tile >= 0; --tile) {
          __syncthreads();
          t.load(smem.keys(), p.k, tile * kRowTile);
          t.arrived();
          t.keep_later(later, tile);
          CopeN8 scores = {}, gates;
          t.make_scores(scores, gates, g.tokens - tile * kRowTile);
          running_sums<true>(gates, later);
        }
        t.clear_dvalues();
      }

      float dq[kOutN8][4] = {}, earlier[2] = {};
      for (int tile = 0; tile < tiles; ++tile) {
        __syncthreads();
        if (tiles > 1) t.load_keys(tile);

        const int valid = g.tokens - tile * kRowTile;
        float later[2] = {};
        if (tiles > 1) t.read_later(later, tile);
        CopeN8 weight = {}, gate, position, slope, gradient = {};
        t.make_scores(weight, gate, valid);
        t.make_positions(position, gate, later);
        t.make_weights(weight, slope, position, valid, last_position, scaled_maximum, inverse_sum);
        add_product_with_rows(gradient, smem.douts(), warp_row, smem.contents(), HeadSize);
        t.softmax_backward(gradient, slope, weight, mean);
        store_square(smem.weights(), weight);
        t.gates_backward(gradient, gate, slope, earlier);
        __syncwarp();
        t.add_to_dvalues();
        add_product_with_columns<T>(dq, gradient, smem.keys());
        __syncthreads();
        store_square(smem.dlogits(), gradient);
        __syncthreads();
        t.add_keys(smem.dlogits(), smem.queries(), params.dk, params.attention.dk, params.common,
                   tile);
        t.add_keys(smem.weights(), smem.douts(), params.dv, params.attention.dv, 1.0F, tile);
      }

      t.scale(dq);
      for (int first = 0; first < cope.positions; first += kRowTile) {
        __syncthreads();
        if (!resident) load_table<T, HeadSize>(smem.table(), cope, first, g.head_size);
        CopeN8 part;
        t.read_dvalues(part, first);
        store_square(smem.weights(), part);
        __syncthreads();
        add_product_with_columns<T>(dq, part, smem.table());
        t.add_to_table(first, table_begun);
      }
      table_begun = true;
      if (params.attention.dq.data != nullptr) t.store_dq(dq);
    }
  }
}

/// The sums of a head's blocks, where several share it.
template <class T, int HeadSize>
__global__ void __launch_bounds__(kThreads)
    cope_keys_kernel(const __grid_constant__ BackwardParams params) {
  const auto& g = params.attention.forward.geometry;
  const bool values = blockIdx.y == 1;
  const View& view = values ? params.attention.dv : params.attention.dk;
  const float* const sums = values ? params.dv : params.dk;
  const std::int64_t index = std::int64_t(blockIdx.x) * kThreads + threadIdx.x;
  const int column = static_cast<int>(index % g.head_size);
  const std::int64_t row = index / g.head_size, head_index = row / g.tokens;
  if (head_index >= g.batch_heads || view.data == nullptr) return;
  const std::int64_t token = row - head_index * g.tokens;
  float sum = 0.0F;
  for (int chunk = 0; chunk < params.chunks; ++chunk)
    sum +=
        sums[((head_index * params.chunks + chunk) * g.padded_tokens + token) * HeadSize + column];
  head_of<T>(view, head_index / g.heads, head_index % g.heads).row(token)[column] =
      narrow<T>(values ? sum : sum * params.common);
}

template <class T>
void backward(const BackwardParams& p, int blocks, cudaStream_t stream) {
  const auto& g = p.attention.forward.geometry;
  const int sets = g.padded_tokens > kRowTile ? 2 : 1;  // of numbers a table row
  const int values = p.cope.values == nullptr ? sets * value_bytes(p.cope.pitch) : 0;
  dispatch_head_size<T>(g.head_size, [&](auto size) {
    constexpr int kSize = decltype(size)::value;
    launch(backward_kernel<T, kSize>, blocks, 1, kThreads,
           backward_smem_bytes<sizeof(T)>(kSize) + values, stream, p);
    if (p.chunks == 1) return;
    const std::int64_t elements = g.batch_heads * g.tokens * g.head_size;
    launch(cope_keys_kernel<T, kSize>, (elements + kThreads - 1) / kThreads, 2, kThreads, 0, stream,
           p);
  });
}

}  // namespace sape2::kernels::cuda::cope
