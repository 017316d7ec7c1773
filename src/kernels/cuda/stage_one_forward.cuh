#pragma once

#include "kernels/cuda/stage_one.cuh"

/// Stage 1 forward: a block takes a group of lines of one axis of one head.
namespace sape2::kernels::cuda {

template <class T, int HeadSize>
int stage_one_forward_bytes(const AxisLines& axis) {
  return 2 * Tile<T>::bytes(axis.group_rows, HeadSize) + TableTile<T, HeadSize>::bytes(axis) +
         kRowTile * (line_pitch(axis) + table_pitch(axis)) * 4 + RowTokens::bytes(axis);
}

/// Prefix tokens and padding have zero vectors; the block of a head's first group writes them.
__device__ inline void clear_unused(const Geometry& g, float* entries, int count) {
  const int unused = g.prefix + g.padded_tokens - g.tokens;
  for (int i = threadIdx.x; i < count * unused; i += blockDim.x) {
    const int entry = i / unused, place = i % unused;
    const int token = place < g.prefix ? place : g.tokens + place - g.prefix;
    entries[std::int64_t(entry) * g.padded_tokens + token] = 0.0F;
  }
}

template <class T, int HeadSize>
__global__ void __launch_bounds__(kThreads)
    stage_one_forward_kernel(const __grid_constant__ StageOneForward params) {
  extern __shared__ __align__(128) unsigned char shared[];
  const StageOneParams& p = params.stage;
  const auto& g = p.geometry;
  const unsigned groups = p.axes[0].groups + p.axes[1].groups, head_index = blockIdx.x / groups;
  const int in_head = blockIdx.x - head_index * groups;
  const int image = head_index / unsigned(g.heads), head = head_index - image * g.heads;
  const std::int64_t batch_head = head_index;
  const int axis_index = in_head >= p.axes[0].groups;
  const AxisLines axis = p.axes[axis_index];
  const int group = in_head - axis_index * p.axes[0].groups;

  const Tile<T> q{shared, axis.group_rows, HeadSize};
  const Tile<T> k{shared + Tile<T>::bytes(axis.group_rows, HeadSize), axis.group_rows, HeadSize};
  unsigned char* const table_place = shared + 2 * Tile<T>::bytes(axis.group_rows, HeadSize);
  float* const scratch =
      reinterpret_cast<float*>(table_place + TableTile<T, HeadSize>::bytes(axis));
  const int pitch = line_pitch(axis), value_pitch = table_pitch(axis);
  float* const positions = scratch + threadIdx.x / 32 * 16 * (pitch + value_pitch);
  float* const values = positions + 16 * pitch;

  const RowTokens row_tokens(axis, g, group,
                             reinterpret_cast<int*>(scratch + kRowTile * (pitch + value_pitch)));
  const auto token_of = [&](int row) { return row_tokens.tokens[row]; };
  load_rows<HeadSize>(q, head_of<T>(p.q, image, head), g.head_size, g.aligned, token_of);
  load_rows<HeadSize>(k, head_of<T>(p.k, image, head), g.head_size, g.aligned, token_of);
  commit_copies();

  const auto& to = params.vectors;
  const auto wide_place = [&](int set) {
    const std::int64_t index = to.add_sets ? batch_head : set * g.batch_heads + batch_head;
    return static_cast<float*>(to.axes[axis_index]) + index * axis.length * g.padded_tokens;
  };
  if (!to.plain && group == 0)
    for (int set = 0; set < (to.add_sets ? 1 : p.sets); ++set)
      clear_unused(g, wide_place(set), axis.length);

  const float gate_scale = per_head(p.gate_scale, head, 1.0F / sqrtf(g.head_size));
  const float gate_offset = per_head(p.gate_offset, head, 0.0F);
  const auto gate = [&](float score) { return sigmoid<T>(gate_scale * score + gate_offset); };
  const int lane = threadIdx.x % 32;
  const int rows_used = axis.group * axis.length;
  for (int set = 0; set < p.sets; ++set) {
    const bool from_q = set == 0 && p.first_from_q;
    const Tile<T> source{from_q ? q.data : k.data, axis.group_rows, HeadSize};
    __syncthreads();
    const TableTile<T, HeadSize> table({p.tables[set][axis_index] + head * p.table_head_stride +
                                            std::int64_t(axis.table_first) * g.head_size,
                                        axis.positions, g.head_size},
                                       table_place);
    wait_for_copies<0>();
    __syncthreads();
    for (int first = threadIdx.x / 32 * 16; first < rows_used; first += kRowTile) {
      const RowTile rows(axis, first);
      line_scores<T, HeadSize>(axis, row_tokens, rows, q, k, positions, pitch, gate);
      table.values(rows, source, values, value_pitch);
      __syncwarp();
      if (lane < 16 && first + lane < rows_used) {
        line_positions(p.span, axis.length, first + lane - row_tokens.line_begin[first + lane],
                       positions + lane * pitch);
      }
      __syncwarp();
      const int row = lane % 16;
      const int token = first + row < rows_used ? token_of(first + row) : -1;
      // (entry, token) or (patch, entry)
      const int stride = to.plain ? 1 : g.padded_tokens;
      const std::int64_t patch =
          (set * g.batch_heads + batch_head) * (g.tokens - g.prefix) + token - g.prefix;
      T* const plain = static_cast<T*>(to.axes[axis_index]) + patch * axis.length;
      float* const wide = wide_place(set) + token;
      const float* const z = values + row * value_pitch;
#pragma unroll 2
      for (int m = lane / 16; m < axis.length && token >= 0; m += 2) {
        const Between at(positions[row * pitch + m], axis);
        const float u = at.weight * z[at.above] + (1.0F - at.weight) * z[at.below];
        if (to.plain) {
          plain[m] = narrow<T>(u);
        } else {
          wide[m * stride] = to.add_sets && set > 0 ? wide[m * stride] + u : u;
        }
      }
      __syncwarp();
    }
  }
}

template <class T>
void stage_one_forward(const StageOneForward& p, cudaStream_t stream) {
  const auto& axes = p.stage.axes;
  const std::int64_t blocks = p.stage.geometry.batch_heads * (axes[0].groups + axes[1].groups);
  dispatch_head_size<T>(p.stage.geometry.head_size, [&](auto size) {
    constexpr int kSize = decltype(size)::value;
    const int x = stage_one_forward_bytes<T, kSize>(axes[0]);
    const int y = stage_one_forward_bytes<T, kSize>(axes[1]);
    launch(stage_one_forward_kernel<T, kSize>, blocks, 1, kThreads, x > y ? x : y, stream, p);
  });
}

}  // namespace sape2::kernels::cuda
