#pragma once

#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/axis_vectors/generic/kernels.h"
#include "kernels/cuda/axis_vectors/generic/table.cuh"
#include "kernels/cuda/axis_vectors/line.cuh"
#include "kernels/cuda/axis_vectors/params.h"
#include "kernels/cuda/axis_vectors/smem.h"
#include "kernels/cuda/common/element.cuh"
#include "kernels/cuda/common/tile.cuh"

/// Stage 1 forward: a block takes some groups of lines of one axis of one head.
namespace sape2::kernels::cuda::axis_vectors::generic {

/// One of this lane's two rows of vectors to memory, or added to what is there.
template <class Number, int N8>
__device__ void store_vector(Number* to, const float (&line)[N8][4], int half, int length,
                             bool in_pairs, bool add) {
  const Lane lane;
#pragma unroll
  for (int n8 = 0; n8 < N8; ++n8) {
    const int place = n8 * 8 + 2 * lane.t;
    if (place >= length) break;
    float2 pair = make_float2(line[n8][2 * half], line[n8][2 * half + 1]);
    if (!in_pairs) {
      to[place] = narrow<Number>(pair.x);
      if (place + 1 < length) to[place + 1] = narrow<Number>(pair.y);
    } else if constexpr (kIsFp32<Number>) {
      float2& at = *reinterpret_cast<float2*>(to + place);
      at = add ? make_float2(at.x + pair.x, at.y + pair.y) : pair;
    } else {
      std::uint32_t& at = *reinterpret_cast<std::uint32_t*>(to + place);
      if (add) {
        const float2 there = unpack<Number>(at);
        pair = make_float2(there.x + pair.x, there.y + pair.y);
      }
      at = pack<Number>(pair.x, pair.y);
    }
  }
}

/// What lies where in shared memory.
template <class T, int HeadSize>
struct ForwardSmem {
  Tile<T> q, k;  // of the group
  unsigned char* table;

  __device__ ForwardSmem(unsigned char* memory, const AxisLines& axis)
      : q{memory, axis.group_rows, HeadSize},
        k{memory + Tile<T>::bytes(axis.group_rows, HeadSize), axis.group_rows, HeadSize},
        table(memory + 2 * Tile<T>::bytes(axis.group_rows, HeadSize)) {}
  /// The patches' table values, of all warps; behind them lie the group's tokens.
  __device__ float* values(const AxisLines& axis) const {
    return reinterpret_cast<float*>(table + TableTile<T, HeadSize>::bytes(axis));
  }
  __device__ int* tokens(const AxisLines& axis) const {
    return reinterpret_cast<int*>(values(axis) + kRowTile * table_pitch(axis));
  }
};

template <class T, int HeadSize, int N8>
__global__ void __launch_bounds__(kThreads, !kIsFp32<T> && HeadSize <= 64 && N8 <= 8 ? 3 : 1)
    forward_kernel(const __grid_constant__ ForwardParams params) {
  extern __shared__ unsigned char unaligned[];
  const Params& p = params.stage;
  const auto& g = p.geometry;
  const unsigned chunks = p.axes[0].chunks + p.axes[1].chunks, head_index = blockIdx.x / chunks;
  const int in_head = blockIdx.x - head_index * chunks;
  const int image = head_index / unsigned(g.heads), head = head_index - image * g.heads;
  const std::int64_t batch_head = head_index;
  const int axis_index = in_head >= p.axes[0].chunks;
  const AxisLines axis = p.axes[axis_index];
  const int first_group = (in_head - axis_index * p.axes[0].chunks) * axis.chunk;
  const int last_group = min(first_group + axis.chunk, axis.groups);

  const ForwardSmem<T, HeadSize> smem(aligned_shared(unaligned), axis);
  const int pitch = table_pitch(axis);
  float* const values = smem.values(axis) + threadIdx.x / 32 * 16 * pitch;
  int* const tokens = smem.tokens(axis);

  const auto& to = params.vectors;
  if (!to.plain && first_group == 0)
    for (int set = 0; set < (to.add_sets ? 1 : p.sets); ++set) {
      const std::int64_t place = to.place(g, axis, axis_index, set, batch_head, 0);
      if (to.fp32) {
        clear_unused(g, static_cast<float*>(to.axes[axis_index]) + place, to.widths[axis_index]);
      } else {
        clear_unused(g, static_cast<T*>(to.axes[axis_index]) + place, to.widths[axis_index]);
      }
    }

  const float gate_scale = per_head(p.gate_scale, head, 1.0F / sqrtf(g.head_size));
  const float gate_offset = per_head(p.gate_offset, head, 0.0F);
  const Lane lane;
  for (int set = 0; set < p.sets; ++set) {
    const bool from_q = set == 0 && p.first_from_q;
    const Tile<T> source{from_q ? smem.q.data : smem.k.data, axis.group_rows, HeadSize};
    __syncthreads();
    const TableTile<T, HeadSize> table({p.tables[set][axis_index] + head * p.table_head_stride +
                                            std::int64_t(axis.table_first) * g.head_size,
                                        axis.positions, g.head_size},
                                       smem.table);
    for (int group = first_group; group < last_group; ++group) {
      __syncthreads();
      list_tokens(axis, g, group, tokens);
      const auto token_of = [&](int row) { return tokens[row]; };
      load_rows<HeadSize>(smem.q, head_of<T>(p.q, image, head), g.head_size, g.aligned, token_of);
      load_rows<HeadSize>(smem.k, head_of<T>(p.k, image, head), g.head_size, g.aligned, token_of);
      cp_async_commit();
      cp_async_wait<0>();
      __syncthreads();
      for (int first = threadIdx.x / 32 * 16; first < axis.group_rows; first += kRowTile) {
        const int begin = first / axis.line_rows * axis.line_rows;
        float line[N8][4];
        {
          float score[N8][4];
          line_scores<T, HeadSize>(score, axis, smem.q, smem.k, first, begin);
          line_positions<T>(line, score, axis, p.span, first - begin + lane.g, gate_scale,
                            gate_offset);
        }
        table.values(axis, first, first - begin, source, values, pitch);
        __syncwarp();
        for_each_place<N8>(axis.length, [&](int n8, int e, int) {
          const int row = lane.g + e / 2 * 8;
          const Between at(line[n8][e], axis, window_first(axis, first - begin + row));
          const float* const z = values + row * pitch;
          line[n8][e] = fmaf(at.weight, z[at.above] - z[at.below], z[at.below]);
        });
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int token = tokens[first + lane.g + 8 * half];
          if (token < 0) continue;
          const std::int64_t place = to.place(g, axis, axis_index, set, batch_head, token);
          if (to.fp32) {
            store_vector(static_cast<float*>(to.axes[axis_index]) + place, line, half, axis.length,
                         true, to.add_sets && set > 0);
          } else {
            store_vector(static_cast<T*>(to.axes[axis_index]) + place, line, half, axis.length,
                         !to.plain, to.add_sets && set > 0);
          }
        }
        __syncwarp();
      }
    }
  }
}

template <class T>
void forward(const ForwardParams& p, cudaStream_t stream) {
  const auto& axes = p.stage.axes;
  const std::int64_t blocks = p.stage.geometry.batch_heads * (axes[0].chunks + axes[1].chunks);
  dispatch_head(p.stage.geometry.head_size, [&](auto size) {
    dispatch_line_n8(axes, [&](auto n8) {
      constexpr int kSize = decltype(size)::value;
      const int x = forward_smem_bytes({sizeof(T), kSize}, axes[0]);
      const int y = forward_smem_bytes({sizeof(T), kSize}, axes[1]);
      launch(forward_kernel<T, kSize, decltype(n8)::value>, blocks, 1, kThreads, x > y ? x : y,
             stream, p);
    });
  });
}

}  // namespace sape2::kernels::cuda::axis_vectors::generic
