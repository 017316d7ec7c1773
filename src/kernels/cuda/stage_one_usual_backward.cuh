#pragma once

#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/stage_one_usual_back.cuh"

/// Stage 1 backward for usual calls, one axis a launch; see stage_one_backward.cuh.
namespace sape2::kernels::cuda {

template <class Lines>
inline constexpr int kUsualBackwardBytes = 2 * Lines::kTileBytes + Lines::kTableBytes +
                                           Lines::kWarps*(UsualWork<Lines>::kBytes +
                                                          UsualWork<Lines>::kBinBytes);

struct UsualBackward {
  StageOneBackward all;
  int axis;
};

template <class T, class Lines>
__global__ void __launch_bounds__(Lines::kThreads, Lines::kLong == 48 ? 4 : 3)
    usual_backward_kernel(const __grid_constant__ UsualBackward params) {
  using Work = UsualWork<Lines>;
  constexpr int kPieces = Lines::kPieces, kColumns = kUsualHead / 8;
  constexpr int kRow = kRowBytes<kUsualHead>, kTileRows = 16 * kRow;
  extern __shared__ __align__(128) unsigned char usual_shared[];
  unsigned char* const q = usual_shared;
  unsigned char* const k = q + Lines::kTileBytes;
  unsigned char* const table = k + Lines::kTileBytes;
  unsigned char* const all_work = table + Lines::kTableBytes;
  const Padded<T> all_bins{all_work + Lines::kWarps * Work::kBytes, Work::kBinPitch};

  const StageOneParams& p = params.all.stage;
  const auto& g = p.geometry;
  const UsualBlock block(p, params.axis, p.axes[params.axis].chunks,
                         p.axes[params.axis].chunk * p.axes[params.axis].group);
  static_assert(UsualTableSums<Lines>::kBytes <= Lines::kWarps * (Work::kBytes + Work::kBinBytes));
  const AxisLines& axis = block.axis;
  const LanePlaces<kUsualHead> places;
  const UsualWarp<Lines> warp;
  const Lane lane;
  const UsualGates<Lines::kLong> gates(p, block.head);
  const auto& from = params.all.gradients;
  const std::int64_t vectors = from.place(g, axis, params.axis, 0, block.batch_head, 0);

  unsigned char* const work = all_work + warp.index * Work::kBytes;
  unsigned char* const bins = all_bins.data + warp.index * Work::kBinBytes;
  const std::uint32_t rows = warp.index * kTileRows;
  const std::uint32_t line_rows = warp.line * Lines::kLong * kRow;
  const std::uint32_t q_at = shared_address(q), k_at = shared_address(k);
  const std::uint32_t source = p.first_from_q ? q_at : k_at;
  const std::uint32_t window = shared_address(table) + Lines::window(warp.own) * kRow;
  const float shift = kFloorShift + Lines::origin(warp.own);

  // c += dz · table, the source's own gradient.
  const auto add_source = [&](float(&c)[kColumns][4]) {
    const std::uint32_t dz = all_bins.a(warp.first_row);
#pragma unroll
    for (int i = 0; i < Lines::kWindow / 16; ++i) {
      FragmentA<T> a;
      load_matrices(a.r, dz + 32 * i);
      multiply_add_columns(c, a, window + places.b_columns + i * kTileRows);
    }
  };

  // c += dzᵀ · source, 16 rows of the table's gradient from all patches in work.
  const auto add_tables = [&](float(&c)[kColumns][4], int first) {
#pragma unroll
    for (int tile = 0; tile < Lines::kWarps; ++tile) {
      const int column = first - Lines::window(tile % Lines::kTiles * 16);
      if (column < 0 || column >= Lines::kWindow) continue;
      FragmentA<T> a;
      load_turned(a.r, all_bins.b_rows(tile * 16) + column * 2);
      multiply_add_columns(c, a, source + tile * kTileRows + places.b_columns);
    }
  };
  // Short lines' tables are 16 rows a warp, summed up in registers.
  constexpr bool kKeepsTable = Lines::kTableRows <= Lines::kRows;
  const auto store_tables = [&](const float(&c)[kColumns][4], int first, bool add) {
    const Cluster cluster;
    const UsualTableSums<Lines> rows(kKeepsTable ? usual_shared : all_work);
    rows.put(c, warp.first_row);
    cluster.synchronize();
    rows.store(params.all.dtables[params.axis] +
                   std::int64_t(blockIdx.x / cluster.size) * axis.positions * kUsualHead,
               first - Lines::table_begin(axis.length), axis.positions, add, cluster);
    cluster.synchronize();
  };
  const bool wants_tables = params.all.dtables[params.axis] != nullptr;
  float dtable[kColumns][4] = {};
  float dscale = 0.0F, doffset = 0.0F;
  // A launch begins before the one in front of it is done: the first axis's waits for the vectors'
  // gradients where that one makes them, else for dk alone, the second axis's for dq and dk.
  const bool first_axis = params.axis == 0, only_dk = first_axis && params.all.only_dk_is_late;
  // Long lines' tables are summed up line by line, so all blocks of a cluster go on to the end.
  const int last_line = kKeepsTable ? block.last_line : block.first_line + axis.chunk * axis.group;
  for (int line = block.first_line; line < last_line; line += Lines::kLines) {
    if (line > block.first_line) __syncthreads();
    load_lines<Lines>(q, UsualTensor<const T>(p.q, p, block), axis, line);
    load_lines<Lines>(k, UsualTensor<const T>(p.k, p, block), axis, line);
    commit_copies();
    if (line == block.first_line) load_usual_table<T, Lines>(table, p, block, params.axis);
    if (first_axis && !only_dk) follow_previous();
    UsualGradients<T, Lines> gradients;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int place = warp.own + lane.g + 8 * half, own_line = line + warp.line;
      const int at = (g.prefix + own_line * axis.line_stride + place * axis.position_stride) *
                     from.widths[params.axis];
      const int length = own_line < axis.lines && place < axis.length ? axis.length : 0;
      if (from.wide) {
        gradients.read(static_cast<const float*>(from.axes[params.axis]) + vectors + at, half,
                       length);
      } else {
        gradients.read(static_cast<const T*>(from.axes[params.axis]) + vectors + at, half, length);
      }
    }
    for (int i = threadIdx.x % 32; i < Work::kBinBytes / 16; i += 32)
      reinterpret_cast<uint4*>(bins)[i] = make_uint4(0, 0, 0, 0);
    gradients.keep(work);
    wait_for_copies<0>();
    __syncthreads();

    float score[kPieces][4], gate[kPieces][4], d[kPieces][4];
    usual_scores<T>(score, q_at + rows + places.a, k_at + line_rows + places.b_rows);
    {
      float position[kPieces][4];
      usual_positions<Lines>(position, gate, score, gates, axis.length, warp.own);
      float* const values = reinterpret_cast<float*>(work);
      usual_values<T, Lines>(values, source + rows + places.a, window + places.b_rows);
      __syncwarp();
      const float* const own_values = values + lane.g * Lines::kValuePitch;
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece) {
        gradients.get(d[piece], work, piece);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const UsualPlace at(position[piece][e], shift,
                              own_values + e / 2 * 8 * Lines::kValuePitch);
          d[piece][e] *= at.weight == 0.0F ? 0.0F : at.slope;
        }
      }
      __syncwarp();
      keep_positions<Lines>(work, position);
      __syncwarp();
    }
    spread_over_bins<T, Lines>(work, bins, Lines::origin(warp.own));

    gate_gradients<Lines>(d, warp.own);
    if constexpr (!Lines::kSuffix) clear_own_place(d, warp.own);
    UsualRows<T> dq(UsualTensor<T>(params.all.dq, p, block), axis, line + warp.line, warp.own);
    if (!only_dk) follow_previous();
    dq.read();
    float c[kColumns][4] = {};
    if (p.first_from_q) add_source(c);
#pragma unroll
    for (int piece = 0; piece < kPieces; piece += 2) {
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        float& dt = d[piece + e / 4][e % 4];
        dt *= gates.slope(gate[piece + e / 4][e % 4]);
        dscale = fmaf(dt, score[piece + e / 4][e % 4], dscale);
        doffset += dt;
        dt *= gates.given_scale;
      }
      const auto a = as_a<T>(d[piece], d[piece + 1]);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        *reinterpret_cast<std::uint32_t*>(work + (lane.g + i % 2 * 8) * Work::kScorePitch +
                                          piece * 16 + i / 2 * 16 + lane.t * 4) = a.r[i];
      multiply_add_columns(c, a, k_at + line_rows + piece * 8 * kRow + places.b_columns);
    }
    dq.add(c, work + Work::kStaging, Work::kRowPitch);
    __syncthreads();

    // dk from all patches of the line, and the tables' gradients from all in work.
    UsualRows<T> dk(UsualTensor<T>(params.all.dk, p, block), axis, line + warp.line, warp.own);
    follow_previous();
    dk.read();
#pragma unroll
    for (int e = 0; e < kColumns * 4; ++e) c[e / 4][e % 4] = 0.0F;
    if (!p.first_from_q) add_source(c);
#pragma unroll
    for (int i = 0; i < Lines::kTiles; ++i) {
      const int tile = warp.line * Lines::kTiles + i;
      const Padded<T> dscores{all_work + tile * Work::kBytes, Work::kScorePitch};
      FragmentA<T> a;
      load_turned(a.r, dscores.b_rows(0) + warp.own * 2);
      multiply_add_columns(c, a, q_at + tile * kTileRows + places.b_columns);
    }
    dk.add(c, work + Work::kStaging, Work::kRowPitch);

    if (wants_tables) {
      if constexpr (kKeepsTable) {
        add_tables(dtable, warp.first_row);
      } else {
#pragma unroll 1
        for (int first = 0; first < Lines::kTableRows; first += Lines::kRows) {
#pragma unroll
          for (int e = 0; e < kColumns * 4; ++e) c[e / 4][e % 4] = 0.0F;
          add_tables(c, first + warp.first_row);
          __syncthreads();
          store_tables(c, first, line > block.first_line);
        }
      }
    }
  }
  follow_previous();  // blocks without lines have not, and what follows takes others' memory
  if constexpr (kKeepsTable) {
    __syncthreads();
    if (wants_tables) store_tables(dtable, 0, false);
  }
  store_cluster_sums(dscale, params.all.dgate_scale[params.axis], doffset,
                     params.all.dgate_offset[params.axis], reinterpret_cast<float*>(usual_shared),
                     Cluster());
}

template <class T>
bool usual_stage_one_backward(const StageOneBackward& p, cudaStream_t stream) {
  const bool complete = p.dq.data != nullptr && p.dk.data != nullptr;
  if (p.gradients.plain || !complete || !is_usual(p.stage)) return false;
  if (!is_counted(p.stage.geometry, p.dq) || !is_counted(p.stage.geometry, p.dk)) return false;
  const auto& axes = p.stage.axes;
  for (int axis = 0; axis < 2; ++axis)
    dispatch_usual_lines(axes[axis], p.stage.span, [&](auto lines) {
      using Lines = decltype(lines);
      launch(usual_backward_kernel<T, Lines>, p.stage.geometry.batch_heads * axes[axis].chunks,
             {.cluster = axes[axis].cluster, .overlapping = true}, Lines::kThreads,
             kUsualBackwardBytes<Lines>, stream, UsualBackward{p, axis});
    });
  return true;
}

}  // namespace sape2::kernels::cuda
