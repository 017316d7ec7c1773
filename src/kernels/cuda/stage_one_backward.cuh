#pragma once

#include "kernels/cuda/block_sum.cuh"
#include "kernels/cuda/stage_one.cuh"

/// Stage 1 backward, one axis a launch: a block takes a group of lines of one head, recomputes
/// gates, positions and table values, and turns the vectors' gradients into those of q, k, tables
/// and gates. Row tiles of 16 patches belong to warps in turn; `chunk` of them are in work at once.
namespace sape2::kernels::cuda {

/// A warp keeps the key gradients of at most two row tiles in registers.
inline constexpr int kMaxLine = 16 * kWarps * 2;

/// One lane walks along a line, so blocks must hide each other's waits.
template <class T, int HeadSize>
inline constexpr int kStageOneBlocks = kIsWide<T> || HeadSize > 64 ? 1 : 3;

struct StageOneBackwardAxis {
  StageOneBackward all;
  int axis;
  int chunk;  // row tiles at once: 4, 2 or 1
};

template <class T, int HeadSize>
int stage_one_backward_bytes(const AxisLines& axis, int chunk) {
  return 2 * Tile<T>::bytes(axis.group_rows, HeadSize) + TableTile<T, HeadSize>::bytes(axis) +
         16 * chunk * (3 * line_pitch(axis) + table_pitch(axis)) * 4 + RowTokens::bytes(axis);
}

/// Gradient of interpolation for one patch: d spread over the table values' gradients.
__device__ inline void spread_over_table(const AxisLines& axis, const float* positions,
                                         const float* d, float* dz) {
  for (int m = 0; m < axis.length; ++m) {
    const Between at(positions[m], axis);
    const float dm = d[m];
    dz[at.above] += at.weight * dm;
    dz[at.below] += (1.0F - at.weight) * dm;
  }
}

/// Positions' gradients to gates' gradients for one patch, in place.
__device__ inline void back_through_positions(Span span, int length, int own, float* line) {
  float sum = 0.0F;
  if (span == Span::suffix) {
#pragma unroll 4
    for (int j = 0; j < length; ++j) line[j] = sum += line[j];
    return;
  }
#pragma unroll 4
  for (int j = length - 1; j > own; --j) line[j] = sum += line[j];
  sum = 0.0F;
#pragma unroll 4
  for (int j = 0; j < own; ++j) line[j] = sum -= line[j];
  line[own] = 0.0F;
}

/// Adds one of this lane's rows of a result to a row of a tensor. In the aligned case all is read,
/// without branches, before the first word is written: one wait instead of many.
template <class T, int Pieces>
__device__ void add_to_row(T* to, const float (&c)[Pieces][4], int half, int head_size,
                           bool aligned) {
  const Lane lane;
  if (!aligned) {
#pragma unroll 1
    for (int column = 2 * lane.t; column < head_size; column += 8)
#pragma unroll
      for (int piece = 0; piece < Pieces; ++piece)
        if (column / 8 == piece) {
          to[column] = narrow<T>(widen(to[column]) + c[piece][2 * half]);
          if (column + 1 < head_size)
            to[column + 1] = narrow<T>(widen(to[column + 1]) + c[piece][2 * half + 1]);
        }
    return;
  }
  using Pair = std::conditional_t<kIsWide<T>, float2, std::uint32_t>;
  Pair pairs[Pieces];
#pragma unroll
  for (int piece = 0; piece < Pieces; ++piece)
    pairs[piece] = *reinterpret_cast<const Pair*>(to + min(piece * 8 + 2 * lane.t, head_size - 2));
#pragma unroll
  for (int piece = 0; piece < Pieces; ++piece) {
    float2 sum;
    if constexpr (kIsWide<T>) {
      sum = pairs[piece];
    } else {
      sum = unpack<T>(pairs[piece]);
    }
    set<T>(pairs[piece], sum.x + c[piece][2 * half], sum.y + c[piece][2 * half + 1]);
    const int column = piece * 8 + 2 * lane.t;
    if (column < head_size) *reinterpret_cast<Pair*>(to + column) = pairs[piece];
  }
}

template <class T, int HeadSize, int TilesPerWarp>
__global__ void __launch_bounds__(kThreads, kStageOneBlocks<T, HeadSize>)
    stage_one_backward_kernel(const __grid_constant__ StageOneBackwardAxis params) {
  constexpr int kPieces = HeadSize / 8;
  extern __shared__ __align__(128) unsigned char shared[];
  const StageOneParams& p = params.all.stage;
  const auto& g = p.geometry;
  const AxisLines axis = p.axes[params.axis];
  const unsigned head_index = blockIdx.x / unsigned(axis.groups);
  const int group = blockIdx.x - head_index * axis.groups;
  const int image = head_index / unsigned(g.heads), head = head_index - image * g.heads;
  const std::int64_t batch_head = head_index;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const Lane at;

  // Shared memory: q and k of the group, the table; for the rows in work: positions (before and
  // after that scores), the gradients of positions and of vectors, and table values, which give way
  // to their gradients.
  const Tile<T> q{shared, axis.group_rows, HeadSize};
  unsigned char* place = shared + Tile<T>::bytes(axis.group_rows, HeadSize);
  const Tile<T> k{place, axis.group_rows, HeadSize};
  place += Tile<T>::bytes(axis.group_rows, HeadSize);
  unsigned char* const table_place = place;
  place += TableTile<T, HeadSize>::bytes(axis);
  const int chunk_rows = 16 * params.chunk;
  const int pitch = line_pitch(axis), value_pitch = table_pitch(axis);
  float* const positions = reinterpret_cast<float*>(place);
  float* const dp = positions + chunk_rows * pitch;
  float* const given = dp + chunk_rows * pitch;
  float* const values = given + chunk_rows * pitch;
  int* const next = reinterpret_cast<int*>(values + chunk_rows * value_pitch);

  const RowTokens row_tokens(axis, g, group, next);
  const auto token_of = [&](int row) { return row_tokens.tokens[row]; };
  load_rows<HeadSize>(q, head_of<T>(p.q, image, head), g.head_size, g.aligned, token_of);
  load_rows<HeadSize>(k, head_of<T>(p.k, image, head), g.head_size, g.aligned, token_of);
  commit_copies();
  wait_for_copies<0>();
  __syncthreads();

  const auto& from = params.all.gradients;
  // (entry, token) or (patch, entry); called with a row's token, then read entry by entry
  const int given_stride = from.plain ? 1 : g.padded_tokens;
  const auto given_place = [&](int set, int token) {
    const std::int64_t index = from.add_sets ? batch_head : set * g.batch_heads + batch_head;
    return from.plain ? (index * (g.tokens - g.prefix) + token - g.prefix) * axis.length
                      : index * axis.length * g.padded_tokens + token;
  };

  const float gate_scale = per_head(p.gate_scale, head, 1.0F / sqrtf(g.head_size));
  const float gate_offset = per_head(p.gate_offset, head, 0.0F);
  const int rows_used = axis.group * axis.length;
  const int tiles = axis.group_rows / 16;
  float dscale = 0.0F, doffset = 0.0F;
  float dk[TilesPerWarp][kPieces][4] = {};
  for (int first_tile = 0; first_tile < tiles; first_tile += params.chunk) {
    const int chunk_tiles = min(params.chunk, tiles - first_tile);
    const int tile = first_tile + (warp - first_tile % kWarps + kWarps) % kWarps;
    const bool busy = tile < first_tile + chunk_tiles;
    const int local = (tile - first_tile) * 16;  // this warp's rows in the scratch
    const RowTile rows(axis, tile * 16);
    float dq[kPieces][4] = {};

    if (busy) {
      line_scores<T, HeadSize>(
          axis, row_tokens, rows, q, k, positions + local * pitch, pitch,
          [&](float score) { return sigmoid<T>(gate_scale * score + gate_offset); });
      __syncwarp();
      if (lane < 16 && rows.first + lane < rows_used)
        line_positions(p.span, axis.length,
                       rows.first + lane - row_tokens.line_begin[rows.first + lane],
                       positions + (local + lane) * pitch);
    }
    for (int set = 0; set < p.sets; ++set) {
      const bool from_q = set == 0 && p.first_from_q;
      const Tile<T> source{from_q ? q.data : k.data, axis.group_rows, HeadSize};
      const TableTile<T, HeadSize> table({p.tables[set][params.axis] + head * p.table_head_stride +
                                              std::int64_t(axis.table_first) * g.head_size,
                                          axis.positions, g.head_size},
                                         table_place);
      __syncthreads();
      if (busy) {
        float* const own_values = values + local * value_pitch;
        table.values(rows, source, own_values, value_pitch);
        __syncwarp();
        const int row = lane % 16;
        const int token = token_of(rows.first + row);
        const std::int64_t place_of = given_place(set, max(token, g.prefix));
        if (from.plain) {
          const T* const own = static_cast<const T*>(from.axes[params.axis]) + place_of;
#pragma unroll 8
          for (int m = lane / 16; m < axis.length; m += 2)
            given[(local + row) * pitch + m] = widen(own[m]);
        } else {
          const float* const own = static_cast<const float*>(from.axes[params.axis]) + place_of;
#pragma unroll 8
          for (int m = lane / 16; m < axis.length; m += 2)
            given[(local + row) * pitch + m] = own[m * given_stride];
        }
        __syncwarp();
#pragma unroll 4
        for (int m = lane / 16; m < axis.length; m += 2) {
          const int at_m = (local + row) * pitch + m;
          const Between between(positions[at_m], axis);
          const float* z = own_values + row * value_pitch;
          const float slope = token < 0 || between.clamped
                                  ? 0.0F
                                  : given[at_m] * (z[between.above] - z[between.below]);
          dp[at_m] = set == 0 ? slope : dp[at_m] + slope;
        }
        __syncwarp();
        for (int i = lane; i < 16 * value_pitch; i += 32) own_values[i] = 0.0F;
        __syncwarp();
        if (lane < 16 && token >= 0)
          spread_over_table(axis, positions + (local + row) * pitch, given + (local + row) * pitch,
                            own_values + row * value_pitch);
        __syncwarp();
        // The source's own gradient, dz · table.
        if (from_q) {
          table.add_product(dq, own_values, value_pitch);
        } else if (TilesPerWarp == 1 || tile < kWarps) {
          table.add_product(dk[0], own_values, value_pitch);
        } else {
          table.add_product(dk[TilesPerWarp - 1], own_values, value_pitch);
        }
      }
      __syncthreads();
      // The table's gradient from all rows in work, dzᵀ · source; 16 table rows a turn.
      if (params.all.dtables[params.axis] != nullptr) {
        float* const partial =
            params.all.dtables[params.axis] +
            (std::int64_t(blockIdx.x) * p.sets + set) * axis.positions * g.head_size;
        for (int r = warp * 16; r < axis.positions; r += kWarps * 16) {
          float c[kPieces][4] = {};
          for (int row = 0; row < chunk_tiles * 16; row += 16) {
            const auto fragment = make_a<T>(
                [&](int r_, int k_) { return values[(row + k_) * value_pitch + r + r_]; });
#pragma unroll
            for (int piece = 0; piece < kPieces; piece += 2) {
              FragmentB<T> b[2];
              load_b_columns(b, source, first_tile * 16 + row, piece * 8);
              multiply_add(c[piece], fragment, b[0]);
              multiply_add(c[piece + 1], fragment, b[1]);
            }
          }
#pragma unroll
          for (int piece = 0; piece < kPieces; ++piece)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
              const int position = r + at.g + e / 2 * 8, column = piece * 8 + 2 * at.t + e % 2;
              if (position >= axis.positions || column >= g.head_size) continue;
              float& place = partial[position * g.head_size + column];
              place = first_tile == 0 ? c[piece][e] : place + c[piece][e];
            }
        }
      }
      __syncthreads();
    }

    if (busy) {
      line_scores<T, HeadSize>(axis, row_tokens, rows, q, k, positions + local * pitch, pitch,
                               [](float score) { return score; });
      if (lane < 16 && rows.first + lane < rows_used)
        back_through_positions(p.span, axis.length,
                               rows.first + lane - row_tokens.line_begin[rows.first + lane],
                               dp + (local + lane) * pitch);
      __syncwarp();
      if (rows.first + lane % 16 < rows_used) {
#pragma unroll 4
        for (int m = lane / 16; m < axis.length; m += 2) {
          const int at_m = (local + lane % 16) * pitch + m;
          const float score = positions[at_m];
          const float gate = sigmoid<T>(gate_scale * score + gate_offset);
          const float dt = dp[at_m] * gate * (1.0F - gate);
          dscale += dt * score;
          doffset += dt;
          dp[at_m] = gate_scale * dt;
        }
      }
      __syncwarp();
      // dq += dt · k along the line.
      for (int column = rows.low; column < rows.high; column += 16) {
        const auto fragment = make_a<T>([&](int row, int k_) {
          const int place = column + k_ - row_tokens.line_begin[rows.first + row];
          const bool inside = place >= 0 && place < axis.length && rows.first + row < rows_used;
          return inside ? dp[(local + row) * pitch + place] : 0.0F;
        });
#pragma unroll
        for (int piece = 0; piece < kPieces; piece += 2) {
          FragmentB<T> b[2];
          load_b_columns(b, k, column, piece * 8);
          multiply_add(dq[piece], fragment, b[0]);
          multiply_add(dq[piece + 1], fragment, b[1]);
        }
      }
      if (params.all.dq.data != nullptr) {
        const auto to = head_of<T>(params.all.dq, image, head);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int token = token_of(rows.first + at.g + 8 * half);
          if (token >= 0) add_to_row(to.row(token), dq, half, g.head_size, g.aligned);
        }
      }
    }
    __syncthreads();
    // dk += dtᵀ · q, over the rows in work that share a line with the keys.
    const auto add_keys = [&](int key_tile, float(&dk_tile)[kPieces][4]) {
      if (key_tile >= tiles) return;
      const RowTile keys(axis, key_tile * 16);
      for (int row = 0; row < chunk_tiles * 16; row += 16) {
        const int group_row = first_tile * 16 + row;
        if (group_row + 16 <= keys.low || group_row >= keys.high) continue;
        const auto fragment = make_a<T>([&](int key, int k_) {
          const int place = keys.first + key - row_tokens.line_begin[group_row + k_];
          const bool inside = place >= 0 && place < axis.length && group_row + k_ < rows_used;
          return inside ? dp[(row + k_) * pitch + place] : 0.0F;
        });
#pragma unroll
        for (int piece = 0; piece < kPieces; piece += 2) {
          FragmentB<T> b[2];
          load_b_columns(b, q, group_row, piece * 8);
          multiply_add(dk_tile[piece], fragment, b[0]);
          multiply_add(dk_tile[piece + 1], fragment, b[1]);
        }
      }
    };
    add_keys(warp, dk[0]);
    if constexpr (TilesPerWarp > 1) add_keys(warp + kWarps, dk[1]);
    __syncthreads();
  }

  if (params.all.dk.data != nullptr) {
    const auto to = head_of<T>(params.all.dk, image, head);
#pragma unroll
    for (int slot = 0; slot < TilesPerWarp; ++slot) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = (slot * kWarps + warp) * 16 + at.g + 8 * half;
        const int token = row < axis.group_rows ? token_of(row) : -1;
        if (token >= 0) add_to_row(to.row(token), dk[slot], half, g.head_size, g.aligned);
      }
    }
  }
  float* const sums = reinterpret_cast<float*>(shared);
  if (params.all.dgate_scale[params.axis] != nullptr) {
    const float all = block_sum(dscale, sums);
    if (threadIdx.x == 0) params.all.dgate_scale[params.axis][blockIdx.x] = all;
  }
  if (params.all.dgate_offset[params.axis] != nullptr) {
    const float all = block_sum(doffset, sums);
    if (threadIdx.x == 0) params.all.dgate_offset[params.axis][blockIdx.x] = all;
  }
}

template <class T>
void stage_one_backward(const StageOneBackward& p, cudaStream_t stream) {
  dispatch_head_size<T>(p.stage.geometry.head_size, [&](auto size) {
    constexpr int kSize = decltype(size)::value;
    for (int axis = 0; axis < 2; ++axis) {
      const AxisLines& lines = p.stage.axes[axis];
      if (lines.length > kMaxLine)
        throw Error("CUDA: a line of the grid has " + std::to_string(lines.length) +
                    " patches, and the fused backward pass takes up to " +
                    std::to_string(kMaxLine) + "; use the reference operators");
      int chunk = 4;
      const auto bytes = [&] { return stage_one_backward_bytes<T, kSize>(lines, chunk); };
      // Two blocks to a multiprocessor where that can be had.
      while (chunk > 2 && bytes() > shared_memory_limit() / 2) chunk /= 2;
      while (chunk > 1 && bytes() > shared_memory_limit()) chunk /= 2;
      const auto kernel = lines.group_rows > kRowTile ? stage_one_backward_kernel<T, kSize, 2>
                                                      : stage_one_backward_kernel<T, kSize, 1>;
      launch(kernel, p.stage.geometry.batch_heads * lines.groups, 1, kThreads, bytes(), stream,
             StageOneBackwardAxis{p, axis, chunk});
    }
  });
}

}  // namespace sape2::kernels::cuda
