#pragma once

#include "kernels/cuda/block_sum.cuh"
#include "kernels/cuda/stage_one_walk.cuh"

/// Stage 1 backward, one axis a launch: a block takes some groups of lines of one head, recomputes
/// gates, positions and table values, and turns the vectors' gradients into those of q, k, tables
/// and gates. A warp takes 16 patches, in lines of more than 64 twice 16.
namespace sape2::kernels::cuda {

struct StageOneBackwardAxis {
  StageOneBackward all;
  int axis;
  int turns;  // the warps' scratch is shared by so many of them, one after another: 1, 2 or 4
};

/// Columns of a tile whose rows lie in one piece, which lanes address one number at a time.
__host__ __device__ inline int straight_columns(int columns) {
  const int padded = round_up(columns, 16);
  return padded % 64 == 0 ? padded + 16 : padded;
}

/// The scratch of one warp, of its 16 patches: scores along their lines, the vectors' gradients and
/// in their place (with two sets behind them) the positions', table values, and their gradients.
template <class T>
struct WarpScratch {
  float* scores;
  float* gradients;
  float* dpositions;
  float* values;
  Tile<T> dvalues;

  __host__ __device__ static int floats(const AxisLines& axis, int sets) {
    return 16 * ((1 + sets) * line_pitch(axis) + table_pitch(axis));
  }
  __host__ __device__ static int bytes(const AxisLines& axis, int sets) {
    return floats(axis, sets) * 4 + Tile<T>::bytes(16, straight_columns(axis.positions + 1));
  }
  __device__ WarpScratch(unsigned char* place, const AxisLines& axis, int sets)
      : scores(reinterpret_cast<float*>(place)),
        gradients(scores + 16 * line_pitch(axis)),
        dpositions(gradients + (sets - 1) * 16 * line_pitch(axis)),
        values(dpositions + 16 * line_pitch(axis)),
        dvalues{place + floats(axis, sets) * 4, 16, straight_columns(axis.positions + 1)} {}
};

template <class T, int HeadSize>
int stage_one_backward_bytes(const AxisLines& axis, int sets, int turns) {
  return kSharedAlignment + 2 * Tile<T>::bytes(axis.group_rows, HeadSize) +
         TableTile<T, HeadSize>::bytes(axis) +
         Tile<T>::bytes(axis.group_rows, straight_columns(axis.line_rows)) +
         kWarps / turns * WarpScratch<T>::bytes(axis, sets) + axis.group_rows * 4;
}

/// Sixteen patches' vectors to shared memory, a row a patch; `vector_of` says where they are, null
/// for none, which leaves its row as it is.
template <class VectorOf>
__device__ void note_gradients(float* to, int pitch, int length, VectorOf vector_of) {
  constexpr int kAtOnce = 8;
  for (int m = threadIdx.x % 32; m < length; m += 32)
#pragma unroll
    for (int first = 0; first < 16; first += kAtOnce) {
      float numbers[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const auto* const from = vector_of(first + i);
        numbers[i] = from == nullptr ? 0.0F : widen(from[m]);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) to[(first + i) * pitch + m] = numbers[i];
    }
}

/// Zeros in 16 rows of a tile, by one warp.
template <class T>
__device__ void clear_rows(const Tile<T>& tile, int first) {
  const int pieces = tile.columns / Tile<T>::kPerPiece;
  for (int i = threadIdx.x % 32; i < 16 * pieces; i += 32)
    *reinterpret_cast<uint4*>(tile.piece(first + i % 16, i / 16)) = make_uint4(0, 0, 0, 0);
}

/// One of this lane's rows of a result to a row of float32 sums, or added to it: all is read before
/// the first pair is written.
template <int Pieces>
__device__ void sum_row(float* to, const float (&c)[Pieces][4], int half, int head_size, bool add) {
  const Lane lane;
  if (head_size % 2 != 0) {
#pragma unroll
    for (int piece = 0; piece < Pieces; ++piece)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int column = piece * 8 + 2 * lane.t + e;
        if (column < head_size) to[column] = (add ? to[column] : 0.0F) + c[piece][2 * half + e];
      }
    return;
  }
  float2 pairs[Pieces];
#pragma unroll
  for (int piece = 0; piece < Pieces; ++piece) {
    const int column = piece * 8 + 2 * lane.t;
    pairs[piece] = add && column < head_size ? *reinterpret_cast<const float2*>(to + column)
                                             : make_float2(0.0F, 0.0F);
  }
#pragma unroll
  for (int piece = 0; piece < Pieces; ++piece) {
    const int column = piece * 8 + 2 * lane.t;
    if (column < head_size)
      *reinterpret_cast<float2*>(to + column) =
          make_float2(pairs[piece].x + c[piece][2 * half], pairs[piece].y + c[piece][2 * half + 1]);
  }
}

/// Adds one of this lane's rows of a result to a row of a tensor. In the aligned case all is read,
/// without branches, before the first word is written: one wait instead of many.
template <class T, int Pieces>
__device__ void add_to_row(T* to, const float (&c)[Pieces][4], int half, int head_size,
                           bool aligned) {
  const Lane lane;
  if (!aligned) {
#pragma unroll
    for (int piece = 0; piece < Pieces; ++piece)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int column = piece * 8 + 2 * lane.t + e;
        if (column < head_size) to[column] = narrow<T>(widen(to[column]) + c[piece][2 * half + e]);
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

/// A result's beginning: `from`, or zeros.
template <int Pieces>
__device__ void choose(float (&c)[Pieces][4], const float (&from)[Pieces][4], bool taken) {
#pragma unroll
  for (int piece = 0; piece < Pieces; ++piece)
#pragma unroll
    for (int e = 0; e < 4; ++e) c[piece][e] = taken ? from[piece][e] : 0.0F;
}

/// `Rounds`: sixteens of patches a warp takes in each group.
template <class T, int HeadSize, int Rounds>
__global__ void __launch_bounds__(kThreads, !kIsWide<T> && HeadSize <= 64 && Rounds == 1 ? 3 : 1)
    stage_one_backward_kernel(const __grid_constant__ StageOneBackwardAxis params) {
  constexpr int kPieces = HeadSize / 8;
  extern __shared__ unsigned char unaligned[];
  const StageOneParams& p = params.all.stage;
  const auto& g = p.geometry;
  const AxisLines axis = p.axes[params.axis];
  const unsigned head_index = blockIdx.x / unsigned(axis.chunks);
  const int first_group = (blockIdx.x - head_index * axis.chunks) * axis.chunk;
  const int last_group = min(first_group + axis.chunk, axis.groups);
  const int image = head_index / unsigned(g.heads), head = head_index - image * g.heads;
  const std::int64_t batch_head = head_index;
  const int warp = threadIdx.x / 32;
  const Lane at;

  // Shared memory: q and k of the group, the table, the scores' gradients, the warps' scratch.
  unsigned char* place = aligned_shared(unaligned);
  const Tile<T> q{place, axis.group_rows, HeadSize};
  place += Tile<T>::bytes(axis.group_rows, HeadSize);
  const Tile<T> k{place, axis.group_rows, HeadSize};
  place += Tile<T>::bytes(axis.group_rows, HeadSize);
  unsigned char* const table_place = place;
  place += TableTile<T, HeadSize>::bytes(axis);
  const Tile<T> dscores{place, axis.group_rows, straight_columns(axis.line_rows)};
  place += Tile<T>::bytes(axis.group_rows, straight_columns(axis.line_rows));
  const int turns = params.turns, scratch_bytes = WarpScratch<T>::bytes(axis, p.sets);
  const auto scratch_of = [&](int tile) {
    return WarpScratch<T>(place + tile / turns * scratch_bytes, axis, p.sets);
  };
  const auto scratch = scratch_of(warp);
  int* const tokens = reinterpret_cast<int*>(place + kWarps / turns * scratch_bytes);
  const auto token_of = [&](int row) { return tokens[row]; };
  const int pitch = line_pitch(axis), value_pitch = table_pitch(axis);

  const auto& from = params.all.gradients;
  const Gates gates(p, head);
  const auto load_table = [&](int set, bool load) {
    return TableTile<T, HeadSize>({p.tables[set][params.axis] + head * p.table_head_stride +
                                       std::int64_t(axis.table_first) * g.head_size,
                                   axis.positions, g.head_size},
                                  table_place, load);
  };

  const bool last_from_q = p.sets == 1 && p.first_from_q;
  const auto add_to_rows = [&](const View& tensor, const float(&c)[kPieces][4], int first) {
    if (tensor.data == nullptr) return;
    const auto to = head_of<T>(tensor, image, head);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int token = token_of(first + at.g + 8 * half);
      if (token >= 0) add_to_row(to.row(token), c, half, g.head_size, g.aligned);
    }
  };

  // This lane's patch among the warp's, and its half of the walk.
  const int own_row = threadIdx.x % 16;
  const bool second = threadIdx.x % 32 >= 16;
  float* const own_scores = scratch.scores + own_row * pitch;
  float* const own_gradients = scratch.gradients + own_row * pitch;
  float* const own_dpositions = scratch.dpositions + own_row * pitch;

  GateSums sums;
  for (int group = first_group; group < last_group; ++group) {
    __syncthreads();
    note_tokens(axis, g, group, tokens);
    load_rows<HeadSize>(q, head_of<T>(p.q, image, head), g.head_size, g.aligned, token_of);
    load_rows<HeadSize>(k, head_of<T>(p.k, image, head), g.head_size, g.aligned, token_of);
    commit_copies();
    if (p.sets == 1) load_table(0, group == first_group);
    wait_for_copies<0>();
    __syncthreads();

    float dsource[Rounds][kPieces][4] = {};  // of the last set
#pragma unroll
    for (int round = 0; round < Rounds; ++round) {
      const int first_row = round * kRowTile, first = first_row + warp * 16;
      const bool busy = first < axis.group_rows;
      const int begin = first / axis.line_rows * axis.line_rows, own_first = first - begin;
      const int own = own_first + own_row;
      const bool walks = busy && tokens[min(first + own_row, axis.group_rows - 1)] >= 0;
      const PatchWalk walk(p.span, axis.length, own, second);
      for (int turn = 0; turn < turns; ++turn) {
        const bool works = busy && warp % turns == turn;
        if (works) {
          note_scores<T, HeadSize>(scratch.scores, pitch, axis, q, k, first, begin);
          clear_rows(dscores, first);
        }
        for (int set = 0; set < p.sets; ++set) {
          const bool from_q = set == 0 && p.first_from_q;
          const Tile<T> source{from_q ? q.data : k.data, axis.group_rows, HeadSize};
          const TableTile<T, HeadSize> table = load_table(set, p.sets > 1);
          if (p.sets > 1) __syncthreads();
          if (works) {
            const auto note = [&](const auto* gradients) {
              note_gradients(scratch.gradients, pitch, axis.length, [&](int row) {
                const int token = tokens[first + row];
                return token < 0
                           ? nullptr
                           : gradients + from.place(g, axis, params.axis, set, batch_head, token);
              });
            };
            if (from.wide) {
              note(static_cast<const float*>(from.axes[params.axis]));
            } else {
              note(static_cast<const T*>(from.axes[params.axis]));
            }
            table.values(axis, first, own_first, source, scratch.values, value_pitch);
            clear_rows(scratch.dvalues, 0);
            __syncwarp();

            const bool between = p.span == Span::between;
            const int window = window_first(axis, own);
            TableBins<T> bins{&scratch.dvalues.at(own_row, 0), between ? axis.origin : -1,
                              walk.sign < 0 ? axis.origin : axis.positions + 1, walk.sign > 0};
            if (walks && walk.count > 0) {
              walk_along<T>(
                  walk, axis, window, gates, own_scores, scratch.values + own_row * value_pitch,
                  own_gradients, [&](int m, int below, float weight, float, float slope, float d) {
                    own_dpositions[m] = fmaf(d, slope, set > 0 ? own_dpositions[m] : 0.0F);
                    bins.add(window + below, weight, d);
                  });
              bins.finish();
            }
            const float other = __shfl_xor_sync(0xffffffffu, bins.centre, 16);
            if (walks && between && !second)
              scratch.dvalues.at(own_row, axis.origin) =
                  narrow<T>(bins.centre + other + own_gradients[own]);
            __syncwarp();
            // The source's own gradient, dz · table. Of two sets the first one's is that of q.
#pragma unroll
            for (int piece = 0; piece < kPieces; ++piece)
#pragma unroll
              for (int e = 0; e < 4; ++e) dsource[round][piece][e] = 0.0F;
            table.add_product(dsource[round], scratch.dvalues);
            if (set + 1 < p.sets) add_to_rows(params.all.dq, dsource[round], first);
          }
          __syncthreads();
          // The table's gradient from all rows in work, dzᵀ · source; 16 table rows a turn.
          if (params.all.dtables[params.axis] != nullptr) {
            float* const partial =
                params.all.dtables[params.axis] +
                (std::int64_t(blockIdx.x) * p.sets + set) * axis.positions * g.head_size;
            const int row_tiles = min(kWarps, (axis.group_rows - first_row) / 16);
            for (int r = warp * 16; r < axis.positions; r += kWarps * 16) {
              float c[kPieces][4] = {};
              for (int tile = turn; tile < row_tiles; tile += turns) {
                const auto fragment = load_a_transposed(scratch_of(tile).dvalues, 0, r);
#pragma unroll
                for (int piece = 0; piece < kPieces; piece += 2) {
                  FragmentB<T> b[2];
                  load_b_columns(b, source, first_row + tile * 16, piece * 8);
                  multiply_add(c[piece], fragment, b[0]);
                  multiply_add(c[piece + 1], fragment, b[1]);
                }
              }
              const bool add = group > first_group || round > 0 || turn > 0;
#pragma unroll
              for (int half = 0; half < 2; ++half) {
                const int row = r + at.g + 8 * half;
                if (row < axis.positions)
                  sum_row(partial + row * g.head_size, c, half, g.head_size, add);
              }
            }
          }
          if (turns > 1 || p.sets > 1 || Rounds > 1) __syncthreads();
        }
        if (works) {
          back_along<T>(walk, walks, gates, own_scores, own_dpositions,
                        &dscores.at(first + own_row, 0), sums);
          __syncwarp();
          // dq += dt · k along the line.
          float dq[kPieces][4];
          choose(dq, dsource[round], last_from_q);
          for (int column = 0; column < axis.line_rows; column += 16) {
            const auto fragment = load_a(dscores, first, column);
#pragma unroll
            for (int piece = 0; piece < kPieces; piece += 2) {
              FragmentB<T> b[2];
              load_b_columns(b, k, begin + column, piece * 8);
              multiply_add(dq[piece], fragment, b[0]);
              multiply_add(dq[piece + 1], fragment, b[1]);
            }
          }
          add_to_rows(params.all.dq, dq, first);
        }
        if (turns > 1) __syncthreads();
      }
    }
    __syncthreads();

    // dk += dtᵀ · q over the rows of the keys' line.
#pragma unroll
    for (int round = 0; round < Rounds; ++round) {
      const int first = round * kRowTile + warp * 16;
      if (first >= axis.group_rows || params.all.dk.data == nullptr) break;
      const int begin = first / axis.line_rows * axis.line_rows;
      float dk[kPieces][4];
      choose(dk, dsource[round], !last_from_q);
      for (int row = begin; row < begin + axis.line_rows; row += 16) {
        const auto fragment = load_a_transposed(dscores, row, first - begin);
#pragma unroll
        for (int piece = 0; piece < kPieces; piece += 2) {
          FragmentB<T> b[2];
          load_b_columns(b, q, row, piece * 8);
          multiply_add(dk[piece], fragment, b[0]);
          multiply_add(dk[piece + 1], fragment, b[1]);
        }
      }
      add_to_rows(params.all.dk, dk, first);
    }
  }

  float* const warps = reinterpret_cast<float*>(unaligned);
  if (params.all.dgate_scale[params.axis] != nullptr) {
    const float all = block_sum(sums.scale, warps);
    if (threadIdx.x == 0) params.all.dgate_scale[params.axis][blockIdx.x] = all;
  }
  if (params.all.dgate_offset[params.axis] != nullptr) {
    const float all = block_sum(sums.offset, warps);
    if (threadIdx.x == 0) params.all.dgate_offset[params.axis][blockIdx.x] = all;
  }
}

template <class T>
void stage_one_backward(const StageOneBackward& p, cudaStream_t stream) {
  const auto& axes = p.stage.axes;
  dispatch_stage_one_head(p.stage.geometry.head_size, [&](auto size) {
    constexpr int kSize = decltype(size)::value;
    for (int axis = 0; axis < 2; ++axis) {
      int turns = 1;
      const auto bytes = [&] {
        return stage_one_backward_bytes<T, kSize>(axes[axis], p.stage.sets, turns);
      };
      while (turns < kWarps && bytes() > shared_memory_limit()) turns *= 2;
      launch(axes[axis].group_rows <= kRowTile ? stage_one_backward_kernel<T, kSize, 1>
                                               : stage_one_backward_kernel<T, kSize, 2>,
             p.stage.geometry.batch_heads * axes[axis].chunks, 1, kThreads, bytes(), stream,
             StageOneBackwardAxis{p, axis, turns});
    }
  });
}

}  // namespace sape2::kernels::cuda
