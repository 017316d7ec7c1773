#pragma once

#include "kernels/cuda/stage_one_walk.cuh"

/// Stage 1 forward: a block takes some groups of lines of one axis of one head.
namespace sape2::kernels::cuda {

template <class T, int HeadSize>
int stage_one_forward_bytes(const AxisLines& axis) {
  return kSharedAlignment + 2 * Tile<T>::bytes(axis.group_rows, HeadSize) +
         TableTile<T, HeadSize>::bytes(axis) +
         kRowTile * (line_pitch(axis) + table_pitch(axis)) * 4 + axis.group_rows * 4;
}

/// Prefix tokens and padding have zero vectors; the block of a head's first group writes them.
template <class Number>
__device__ void clear_unused(const Geometry& g, Number* vectors, int width) {
  const int unused = g.prefix + g.padded_tokens - g.tokens;
  for (int i = threadIdx.x; i < width * unused; i += kThreads) {
    const int place = i / width;
    const int token = place < g.prefix ? place : g.tokens + place - g.prefix;
    vectors[std::int64_t(token) * width + i % width] = narrow<Number>(0.0F);
  }
}

/// Sixteen patches' vectors to memory, or added to what is there; `vector_of` says where to, null
/// for nowhere.
template <class VectorOf>
__device__ void store_vectors(const float* from, int pitch, int length, bool add,
                              VectorOf vector_of) {
#pragma unroll 4
  for (int row = 0; row < 16; ++row) {
    auto* const to = vector_of(row);
    if (to == nullptr) continue;
    for (int m = threadIdx.x % 32; m < length; m += 32) {
      const float number = from[row * pitch + m];
      to[m] = narrow<std::remove_reference_t<decltype(*to)>>(add ? widen(to[m]) + number : number);
    }
  }
}

template <class T, int HeadSize>
__global__ void __launch_bounds__(kThreads, !kIsWide<T> && HeadSize <= 64 ? 4 : 1)
    stage_one_forward_kernel(const __grid_constant__ StageOneForward params) {
  extern __shared__ unsigned char unaligned[];
  unsigned char* const shared = aligned_shared(unaligned);
  const StageOneParams& p = params.stage;
  const auto& g = p.geometry;
  const unsigned chunks = p.axes[0].chunks + p.axes[1].chunks, head_index = blockIdx.x / chunks;
  const int in_head = blockIdx.x - head_index * chunks;
  const int image = head_index / unsigned(g.heads), head = head_index - image * g.heads;
  const std::int64_t batch_head = head_index;
  const int axis_index = in_head >= p.axes[0].chunks;
  const AxisLines axis = p.axes[axis_index];
  const int first_group = (in_head - axis_index * p.axes[0].chunks) * axis.chunk;
  const int last_group = min(first_group + axis.chunk, axis.groups);

  const Tile<T> q{shared, axis.group_rows, HeadSize};
  const Tile<T> k{shared + Tile<T>::bytes(axis.group_rows, HeadSize), axis.group_rows, HeadSize};
  unsigned char* const table_place = shared + 2 * Tile<T>::bytes(axis.group_rows, HeadSize);
  const int pitch = line_pitch(axis), value_pitch = table_pitch(axis);
  const int scratch = 16 * (pitch + value_pitch);
  float* const all_scratch =
      reinterpret_cast<float*>(table_place + TableTile<T, HeadSize>::bytes(axis));
  float* const scores = all_scratch + threadIdx.x / 32 * scratch;
  float* const values = scores + 16 * pitch;
  int* const tokens = reinterpret_cast<int*>(all_scratch + kWarps * scratch);

  const auto& to = params.vectors;
  if (!to.plain && first_group == 0)
    for (int set = 0; set < (to.add_sets ? 1 : p.sets); ++set) {
      const std::int64_t place = to.place(g, axis, axis_index, set, batch_head, 0);
      if (to.wide) {
        clear_unused(g, static_cast<float*>(to.axes[axis_index]) + place, to.widths[axis_index]);
      } else {
        clear_unused(g, static_cast<T*>(to.axes[axis_index]) + place, to.widths[axis_index]);
      }
    }

  const Gates gates(p, head);
  // This lane's patch among the warp's, and its half of the walk.
  const int own_row = threadIdx.x % 16;
  const bool second = threadIdx.x % 32 >= 16;
  float* const own_scores = scores + own_row * pitch;
  const float* const own_values = values + own_row * value_pitch;
  for (int set = 0; set < p.sets; ++set) {
    const bool from_q = set == 0 && p.first_from_q;
    const Tile<T> source{from_q ? q.data : k.data, axis.group_rows, HeadSize};
    __syncthreads();
    const TableTile<T, HeadSize> table({p.tables[set][axis_index] + head * p.table_head_stride +
                                            std::int64_t(axis.table_first) * g.head_size,
                                        axis.positions, g.head_size},
                                       table_place);
    for (int group = first_group; group < last_group; ++group) {
      __syncthreads();
      note_tokens(axis, g, group, tokens);
      const auto token_of = [&](int row) { return tokens[row]; };
      load_rows<HeadSize>(q, head_of<T>(p.q, image, head), g.head_size, g.aligned, token_of);
      load_rows<HeadSize>(k, head_of<T>(p.k, image, head), g.head_size, g.aligned, token_of);
      commit_copies();
      wait_for_copies<0>();
      __syncthreads();
      for (int first = threadIdx.x / 32 * 16; first < axis.group_rows; first += kRowTile) {
        const int begin = first / axis.line_rows * axis.line_rows;
        note_scores<T, HeadSize>(scores, pitch, axis, q, k, first, begin);
        table.values(axis, first, first - begin, source, values, value_pitch);
        __syncwarp();
        const int own = first - begin + own_row, window = window_first(axis, own);
        if (tokens[first + own_row] >= 0) {
          // Vectors take the scores' place.
          walk_along<T>(PatchWalk(p.span, axis.length, own, second), axis, window, gates,
                        own_scores, own_values, own_scores,
                        [&](int m, int, float weight, float value, float slope, float) {
                          own_scores[m] = fmaf(weight, slope, value);
                        });
          if (p.span == Span::between && !second)
            own_scores[own] = own_values[axis.origin - window];
        }
        __syncwarp();
        const auto store = [&](auto* vectors) {
          store_vectors(scores, pitch, axis.length, to.add_sets && set > 0, [&](int row) {
            const int token = tokens[first + row];
            return token < 0 ? nullptr
                             : vectors + to.place(g, axis, axis_index, set, batch_head, token);
          });
        };
        if (to.wide) {
          store(static_cast<float*>(to.axes[axis_index]));
        } else {
          store(static_cast<T*>(to.axes[axis_index]));
        }
        __syncwarp();
      }
    }
  }
}

template <class T>
void stage_one_forward(const StageOneForward& p, cudaStream_t stream) {
  const auto& axes = p.stage.axes;
  const std::int64_t blocks = p.stage.geometry.batch_heads * (axes[0].chunks + axes[1].chunks);
  dispatch_stage_one_head(p.stage.geometry.head_size, [&](auto size) {
    constexpr int kSize = decltype(size)::value;
    const int x = stage_one_forward_bytes<T, kSize>(axes[0]);
    const int y = stage_one_forward_bytes<T, kSize>(axes[1]);
    launch(stage_one_forward_kernel<T, kSize>, blocks, 1, kThreads, x > y ? x : y, stream, p);
  });
}

}  // namespace sape2::kernels::cuda
