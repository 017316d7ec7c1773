#pragma once

#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/axis_vectors/generic/backward_steps.cuh"
#include "kernels/cuda/axis_vectors/generic/kernels.h"
#include "kernels/cuda/axis_vectors/generic/table.cuh"
#include "kernels/cuda/axis_vectors/line.cuh"
#include "kernels/cuda/axis_vectors/params.h"
#include "kernels/cuda/axis_vectors/smem.h"
#include "kernels/cuda/common/block_sum.cuh"
#include "kernels/cuda/common/element.cuh"
#include "kernels/cuda/common/tile.cuh"
#include "kernels/cuda/host/device.h"

/// Stage 1 backward, one axis a launch: a block takes some groups of lines of one head, recomputes
/// gates, positions and table values, and turns the vectors' gradients into those of q, k, tables
/// and gates. A warp takes 16 patches, in lines of more than 64 twice 16.
namespace sape2::kernels::cuda::axis_vectors::generic {

struct BackwardAxisParams {
  BackwardParams all;
  int axis;
  int turns;  // the warps' scratch is shared by so many of them, one after another: 1, 2 or 4
};

/// What lies where in shared memory.
template <class T, int HeadSize>
struct BackwardSmem {
  Tile<T> q, k;  // of the group
  unsigned char* table;
  Tile<T> dscores;  // the scores' gradients
  float* scratch;   // of the warps; behind it lie the group's tokens

  __device__ BackwardSmem(unsigned char* memory, const AxisLines& axis)
      : q{memory, axis.group_rows, HeadSize},
        k{q.data + Tile<T>::bytes(axis.group_rows, HeadSize), axis.group_rows, HeadSize},
        table(k.data + Tile<T>::bytes(axis.group_rows, HeadSize)),
        dscores{table + TableTile<T, HeadSize>::bytes(axis), axis.group_rows, axis.line_rows},
        scratch(reinterpret_cast<float*>(dscores.data +
                                         Tile<T>::bytes(axis.group_rows, axis.line_rows))) {}
  __device__ int* tokens(const AxisLines& axis, int turns) const {
    return reinterpret_cast<int*>(scratch + kWarps / turns * warp_scratch(axis));
  }
};

/// The steps of a group of lines, on what the kernel has in registers and in shared memory.
template <class T, int HeadSize, int N8>
struct BackwardTile {
  static constexpr int kN8 = HeadSize / 8;
  const BackwardAxisParams& params;
  const Params& p;
  const Geometry& g;
  const AxisLines& axis;
  const int &image, &head;
  const std::int64_t& batch_head;
  const int& lane;
  const Lane& at;
  const BackwardSmem<T, HeadSize>& smem;
  const int& turns;
  const int &pitch, &value_pitch;
  float *const &positions, *const &values;
  int* const& tokens;
  const float &gate_scale, &gate_offset;
  float &dscale, &doffset;

  __device__ void load_group() const {
    const auto token_of = [&](int row) { return tokens[row]; };
    load_rows<HeadSize>(smem.q, head_of<T>(p.q, image, head), g.head_size, g.aligned, token_of);
    load_rows<HeadSize>(smem.k, head_of<T>(p.k, image, head), g.head_size, g.aligned, token_of);
  }
  __device__ TableTile<T, HeadSize> load_table(int set, bool load) const {
    return TableTile<T, HeadSize>({p.tables[set][params.axis] + head * p.table_head_stride +
                                       std::int64_t(axis.table_first) * g.head_size,
                                   axis.positions, g.head_size},
                                  smem.table, load);
  }
  /// What forward had of sixteen patches from row `first` of the group on; their line begins at
  /// row `begin`.
  __device__ void recompute(float (&score)[N8][4], float (&position)[N8][4], int first, int begin,
                            int own) const {
    line_scores<T, HeadSize>(score, axis, smem.q, smem.k, first, begin);
    line_positions<T>(position, score, axis, p.span, own, gate_scale, gate_offset);
  }
  __device__ void add_to_rows(const View& tensor, const float (&c)[kN8][4], int first) const {
    if (tensor.data == nullptr) return;
    const auto to = head_of<T>(tensor, image, head);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int token = tokens[first + at.g + 8 * half];
      if (token >= 0) add_to_row(to.row(token), c, half, g.head_size, g.aligned);
    }
  }
  /// The gradients of sixteen patches' vectors become those of positions, and of table values in
  /// the values' place.
  template <class Gradient>
  __device__ void turn_gradients(const Gradient* gradients, int set, int first, int own_first,
                                 const float (&position)[N8][4], float (&dposition)[N8][4]) const {
    const auto vector_of = [&](int row) {
      const int token = tokens[first + row];
      return token < 0 ? nullptr
                       : gradients + params.all.gradients.place(g, axis, params.axis, set,
                                                                batch_head, token);
    };
    float d[N8][4];
    load_gradients(d, vector_of(at.g), vector_of(at.g + 8), axis.length);
    __syncwarp();
    const int windows[2] = {window_first(axis, own_first + at.g),
                            window_first(axis, own_first + at.g + 8)};
    const float shifts[2] = {float(axis.origin - windows[0]), float(axis.origin - windows[1])};
    for_each_place<N8>(axis.length, [&](int n8, int e, int m) {
      const int row = at.g + e / 2 * 8;
      const Between between(position[n8][e], axis, windows[e / 2]);
      const float* const z = values + row * value_pitch;
      const float slope = z[between.above] - z[between.below];
      dposition[n8][e] = fmaf(d[n8][e], slope, dposition[n8][e]);
      positions[row * pitch + m] = position[n8][e] + shifts[e / 2];
    });
    __syncwarp();
    for (int i = lane; i < 32 * value_pitch; i += 32) values[i] = 0.0F;
    __syncwarp();
    // Two lanes a patch, one for each half of its line.
    const int row = lane % 16, middle = axis.length / 2;
    if (const auto* const own_d = vector_of(row); own_d != nullptr)
      spread_over_table(lane < 16 ? 0 : middle, lane < 16 ? middle : axis.length, window_rows(axis),
                        positions + row * pitch, own_d, values + lane * value_pitch);
    __syncwarp();
    for (int i = lane; i < 16 * value_pitch; i += 32) values[i] += values[i + 16 * value_pitch];
    __syncwarp();
  }
  /// The same from gradients of either type.
  __device__ void vectors_backward(int set, int first, int own_first,
                                   const float (&position)[N8][4],
                                   float (&dposition)[N8][4]) const {
    const auto& from = params.all.gradients;
    if (from.fp32) {
      turn_gradients(static_cast<const float*>(from.axes[params.axis]), set, first, own_first,
                     position, dposition);
    } else {
      turn_gradients(static_cast<const T*>(from.axes[params.axis]), set, first, own_first, position,
                     dposition);
    }
  }
  /// The source's own gradient, dz · table. Of two sets the first one's is that of q.
  __device__ void source_backward(float (&dsource)[kN8][4], const TableTile<T, HeadSize>& table,
                                  int set, int first, int own_first) const {
    choose(dsource, dsource, false);
    table.add_product(dsource, axis, own_first, values, value_pitch);
    if (set + 1 < p.sets) add_to_rows(params.all.dq, dsource, first);
  }
  /// c += dzᵀ · source, 16 rows `r` … of the table's gradient from the 16 patches of a warp.
  __device__ void add_to_table(float (&c)[kN8][4], const Tile<T>& source, int r, int first_row,
                               int tile) const {
    const float* const dz = smem.scratch + tile / turns * warp_scratch(axis) + 16 * pitch;
    const int tile_own = (first_row + tile * 16) % axis.line_rows;
    const auto fragment = make_a<T>([&](int r_, int k_) {
      return window_at(dz + k_ * value_pitch, axis, tile_own + k_, r + r_, value_pitch);
    });
#pragma unroll
    for (int n8 = 0; n8 < kN8; n8 += 2) {
      FragmentB<T> b[2];
      load_b_columns(b, source, first_row + tile * 16, n8 * 8);
      mma(c[n8], fragment, b[0]);
      mma(c[n8 + 1], fragment, b[1]);
    }
  }
  /// This block's sums of a table's gradient.
  __device__ float* table_sums(int set) const {
    return params.all.dtables[params.axis] +
           (std::int64_t(blockIdx.x) * p.sets + set) * axis.positions * g.head_size;
  }
  __device__ void store_table_rows(float* partial, const float (&c)[kN8][4], int r,
                                   bool add) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = r + at.g + 8 * half;
      if (row < axis.positions) sum_row(partial + row * g.head_size, c, half, g.head_size, add);
    }
  }
  /// The positions' gradients become the gates' and then the scores', and add to those of the
  /// gates' scale and offset.
  __device__ void gates_backward(float (&d)[N8][4], const float (&score)[N8][4], int own) const {
    sum_by_span<false>(d, p.span, own);
#pragma unroll
    for (int n8 = 0; n8 < N8; ++n8)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        if (n8 * 8 + 2 * at.t + e % 2 >= axis.length) d[n8][e] = 0.0F;
        const float gate = sigmoid<T>(gate_scale * score[n8][e] + gate_offset);
        const float dt = d[n8][e] * gate * (1.0F - gate);
        dscale += dt * score[n8][e];
        doffset += dt;
        d[n8][e] = gate_scale * dt;
      }
  }
  /// dq += dt · k along the line; dt is kept for the keys.
  __device__ void add_dq(float (&dq)[kN8][4], const float (&dt)[N8][4], int first,
                         int begin) const {
#pragma unroll
    for (int n8 = 0; n8 < N8; n8 += 2) {
      if (n8 * 8 >= axis.line_rows) break;
      const auto fragment = as_a<T>(dt[n8], dt[n8 + 1]);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        store_pair(smem.dscores, first + at.g + i % 2 * 8, n8 * 8 + 2 * at.t + i / 2 * 8,
                   fragment.r[i]);
#pragma unroll
      for (int column = 0; column < kN8; column += 2) {
        FragmentB<T> b[2];
        load_b_columns(b, smem.k, begin + n8 * 8, column * 8);
        mma(dq[column], fragment, b[0]);
        mma(dq[column + 1], fragment, b[1]);
      }
    }
  }
  /// dk += dtᵀ · q over the rows of the keys' line.
  __device__ void add_dk(float (&dk)[kN8][4], int first, int begin) const {
    for (int row = begin; row < begin + axis.line_rows; row += 16) {
      const auto fragment = load_a_transposed(smem.dscores, row, first - begin);
#pragma unroll
      for (int n8 = 0; n8 < kN8; n8 += 2) {
        FragmentB<T> b[2];
        load_b_columns(b, smem.q, row, n8 * 8);
        mma(dk[n8], fragment, b[0]);
        mma(dk[n8 + 1], fragment, b[1]);
      }
    }
  }
  /// dk of sixteen keys. `is_dk`: whether the source's gradient is one of keys.
  __device__ void keys_backward(const float (&dsource)[kN8][4], bool is_dk, int first,
                                int begin) const {
    float dk[kN8][4];
    choose(dk, dsource, is_dk);
    add_dk(dk, first, begin);
    add_to_rows(params.all.dk, dk, first);
  }
  /// This block's sums of what the gates' scale and offset get.
  __device__ void store_gate_sums(float* shared) const {
    float* const gate_sums[2] = {params.all.dgate_scale[params.axis],
                                 params.all.dgate_offset[params.axis]};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (gate_sums[i] == nullptr) continue;
      const float sum = block_sum(i == 0 ? dscale : doffset, shared);
      if (threadIdx.x == 0) gate_sums[i][blockIdx.x] = sum;
    }
  }
};

template <class T, int HeadSize, int N8>
__global__ void __launch_bounds__(kThreads, kIsFp32<T> || HeadSize > 64 || N8 > 8 ? 1
                                            : N8 > 4                              ? 2
                                                                                  : 3)
    backward_kernel(const __grid_constant__ BackwardAxisParams params) {
  constexpr int kN8 = HeadSize / 8;
  constexpr int kRounds = N8 > 8 ? 2 : 1;
  extern __shared__ unsigned char unaligned[];
  const Params& p = params.all.stage;
  const auto& g = p.geometry;
  const AxisLines axis = p.axes[params.axis];
  const unsigned head_index = blockIdx.x / unsigned(axis.chunks);
  const int first_group = (blockIdx.x - head_index * axis.chunks) * axis.chunk;
  const int last_group = min(first_group + axis.chunk, axis.groups);
  const int image = head_index / unsigned(g.heads), head = head_index - image * g.heads;
  const std::int64_t batch_head = head_index;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const Lane at;

  const BackwardSmem<T, HeadSize> smem(aligned_shared(unaligned), axis);
  const int pitch = line_pitch(axis), value_pitch = table_pitch(axis);
  const int turns = params.turns;
  float* const positions = smem.scratch + warp / turns * warp_scratch(axis);
  float* const values = positions + 16 * pitch;
  int* const tokens = smem.tokens(axis, turns);

  const float gate_scale = per_head(p.gate_scale, head, 1.0F / sqrtf(g.head_size));
  const float gate_offset = per_head(p.gate_offset, head, 0.0F);
  float dscale = 0.0F, doffset = 0.0F;
  const BackwardTile<T, HeadSize, N8> steps{params, p,          g,           axis,      image,
                                            head,   batch_head, lane,        at,        smem,
                                            turns,  pitch,      value_pitch, positions, values,
                                            tokens, gate_scale, gate_offset, dscale,    doffset};
  const bool last_from_q = p.sets == 1 && p.first_from_q;
  for (int group = first_group; group < last_group; ++group) {
    __syncthreads();
    list_tokens(axis, g, group, tokens);
    steps.load_group();
    cp_async_commit();
    if (p.sets == 1) steps.load_table(0, group == first_group);
    cp_async_wait<0>();
    __syncthreads();

    float dsource[kRounds][kN8][4] = {};  // of the last set
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
      const int first_row = round * kRowTile, first = first_row + warp * 16;
      const bool busy = first < axis.group_rows;
      const int begin = first / axis.line_rows * axis.line_rows, own = first - begin + at.g;
      float score[N8][4], position[N8][4], dposition[N8][4] = {};
      if (busy) steps.recompute(score, position, first, begin, own);
      for (int set = 0; set < p.sets; ++set) {
        const bool from_q = set == 0 && p.first_from_q;
        const Tile<T> source{from_q ? smem.q.data : smem.k.data, axis.group_rows, HeadSize};
        const TableTile<T, HeadSize> table = steps.load_table(set, p.sets > 1);
        if (p.sets > 1) __syncthreads();
        for (int turn = 0; turn < turns; ++turn) {
          if (busy && warp % turns == turn) {
            const int own_first = first - begin;
            table.values(axis, first, own_first, source, values, value_pitch);
            steps.vectors_backward(set, first, own_first, position, dposition);
            steps.source_backward(dsource[round], table, set, first, own_first);
          }
          __syncthreads();
          // The table's gradient from all rows in work, dzᵀ · source; 16 table rows a round.
          if (params.all.dtables[params.axis] != nullptr) {
            float* const partial = steps.table_sums(set);
            const int row_tiles = min(kWarps, (axis.group_rows - first_row) / 16);
            for (int r = warp * 16; r < axis.positions; r += kWarps * 16) {
              float c[kN8][4] = {};
              for (int tile = turn; tile < row_tiles; tile += turns)
                steps.add_to_table(c, source, r, first_row, tile);
              steps.store_table_rows(partial, c, r, group > first_group || round > 0 || turn > 0);
            }
          }
          __syncthreads();
        }
      }

      if (busy) {
        steps.gates_backward(dposition, score, own);
        float dq[kN8][4];
        choose(dq, dsource[round], last_from_q);
        steps.add_dq(dq, dposition, first, begin);
        steps.add_to_rows(params.all.dq, dq, first);
      }
    }
    __syncthreads();

#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
      const int first = round * kRowTile + warp * 16;
      if (first >= axis.group_rows || params.all.dk.data == nullptr) break;
      const int begin = first / axis.line_rows * axis.line_rows;
      steps.keys_backward(dsource[round], !last_from_q, first, begin);
    }
  }

  steps.store_gate_sums(reinterpret_cast<float*>(aligned_shared(unaligned)));
}

template <class T>
void backward(const BackwardParams& all, cudaStream_t stream) {
  BackwardParams p = all;
  auto& axes = p.stage.axes;
  for (auto& axis : axes) dissolve_clusters(axis);
  dispatch_head(p.stage.geometry.head_size, [&](auto size) {
    dispatch_line_n8(axes, [&](auto n8) {
      constexpr int kSize = decltype(size)::value;
      for (int axis = 0; axis < 2; ++axis) {
        int turns = 1;
        const auto bytes = [&] {
          return backward_smem_bytes({sizeof(T), kSize}, axes[axis], turns);
        };
        while (turns < kWarps && bytes() > shared_memory_limit()) turns *= 2;
        launch(backward_kernel<T, kSize, decltype(n8)::value>,
               p.stage.geometry.batch_heads * axes[axis].chunks, 1, kThreads, bytes(), stream,
               BackwardAxisParams{p, axis, turns});
      }
    });
  });
}

}  // namespace sape2::kernels::cuda::axis_vectors::generic
