#pragma once

#include "kernels/cuda/arch/ldmatrix.cuh"
#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/arch/pdl.cuh"
#include "kernels/cuda/arch/tma.cuh"
#include "kernels/cuda/axis_vectors/line.cuh"
#include "kernels/cuda/axis_vectors/params.h"
#include "kernels/cuda/axis_vectors/specialized/backward_smem.cuh"
#include "kernels/cuda/axis_vectors/specialized/backward_steps.cuh"
#include "kernels/cuda/axis_vectors/specialized/block.cuh"
#include "kernels/cuda/axis_vectors/specialized/kernels.h"
#include "kernels/cuda/axis_vectors/specialized/parameter_sums.cuh"
#include "kernels/cuda/axis_vectors/specialized/positions.cuh"
#include "kernels/cuda/axis_vectors/specialized/tokens.cuh"
#include "kernels/cuda/common/tile.cuh"

#include <utility>

/// Stage 1 backward for specialized sizes, one axis a launch; see
/// axis_vectors/generic/backward.cuh.
namespace sape2::kernels::cuda::axis_vectors::specialized {

struct BackwardKernelParams {
  Grid grid;
  bool second;  // it is the second launch
  TokenMaps maps;
  CUtensorMap dq, dk;  // 16 places
  BackwardParams all;  // the launch's axis as number 0, so that its numbers are known places
};

inline BackwardKernelParams backward_kernel_params(BackwardParams p, int axis) {
  if (axis == 1) {
    std::swap(p.stage.axes[0], p.stage.axes[1]);
    std::swap(p.stage.tables[0][0], p.stage.tables[0][1]);
    std::swap(p.gradients.axes[0], p.gradients.axes[1]);
    std::swap(p.gradients.widths[0], p.gradients.widths[1]);
    std::swap(p.dtables[0], p.dtables[1]);
    std::swap(p.dgate_scale[0], p.dgate_scale[1]);
    std::swap(p.dgate_offset[0], p.dgate_offset[1]);
  }
  const AxisLines& own = p.stage.axes[0];
  return {Grid(p.stage, own.chunks, own.chunk * own.group), axis == 1, {}, {}, {}, p};
}

/// The steps of a group of lines, on what the kernel has in registers and in shared memory.
template <class T, class Lines>
struct BackwardTile {
  using Work = WarpSmem<Lines>;
  using Smem = BackwardSmem<Lines>;
  using Sums = ParameterSums<Lines>;
  using TableParts = typename Sums::Parts;
  static constexpr int kN8 = Lines::kN8, kColumns = kHeadSize / 8;
  static constexpr int kTileRows = 16 * kRowBytes<kHeadSize>;
  const BackwardKernelParams& params;
  const AxisLines& axis;
  const Warp<Lines>& warp;
  const Lane& lane;
  const LdmatrixOffsets<kHeadSize>& offsets;
  const Padded<T>& all_bins;
  const std::uint32_t& source;  // q or k, in the buffer that is at work
  const std::uint32_t& window;
  Sums& sums;
  float* const& dtables;
  float &dscale, &doffset;
  Gradients<T, Lines>& gradients;
  const bool& gradients_are_ready;

  /// c += dz · table, the source's own gradient.
  __device__ void add_source(float (&c)[kColumns][4]) const {
    const std::uint32_t dz = all_bins.a(warp.first_row);
#pragma unroll
    for (int i = 0; i < Lines::kWindow / 16; ++i) {
      FragmentA<T> a;
      ldmatrix_x4(a.r, dz + 32 * i);
      mma_columns(c, a, window + offsets.b_columns + i * kTileRows);
    }
  }
  /// c += dzᵀ · source, 16 rows of the table's gradient from all patches in work: those at the same
  /// places of their lines together, since they reach the same window.
  __device__ void add_tables(float (&c)[kColumns][4], int first) const {
#pragma unroll
    for (int in_line = 0; in_line < Lines::kTiles; ++in_line) {
      const int column = first - Lines::window(in_line * 16);
      if (column < 0 || column >= Lines::kWindow) continue;
#pragma unroll
      for (int tile = in_line; tile < Lines::kWarps; tile += Lines::kTiles) {
        FragmentA<T> a;
        ldmatrix_x4_trans(a.r, all_bins.b_rows(tile * 16) + column * 2);
        mma_columns(c, a, source + tile * kTileRows + offsets.b_columns);
      }
    }
  }
  /// Tables' sums, and at the end those of the gates; takes the place of the scores' gradients.
  __device__ void store_sums(const TableParts& parts, bool add, bool last) const {
    sums.store(parts, {dtables, Lines::table_begin(axis.length), axis.positions, add},
               make_float2(dscale, doffset), last ? params.all.dgate_scale[0] : nullptr,
               last ? params.all.dgate_offset[0] : nullptr);
  }
  /// Until rows have left, but for those that left from dk's own place last.
  __device__ static void free_staging() {
    tma_store_wait<Smem::kOwnStaging ? 1 : 0>();
    __syncwarp();
  }
  /// A launch begins before the one in front of it is done, and waits where it reads what that one
  /// makes: the vectors' gradients, or just dq and dk.
  __device__ void ask_for_gradients(int line, bool wanted) const {
    if (!gradients_are_ready) {
      pdl_wait();
      pdl_launch_dependents();
    }
    gradients.ask(axis, line + warp.line, warp.own, wanted);
  }
  /// The vectors' gradients, at each place times the table's slope there: those of positions.
  __device__ void times_slopes(float (&d)[kN8][4], const float (&position)[kN8][4],
                               unsigned char* work, float shift) const {
    const float* const own_values = reinterpret_cast<float*>(work) + lane.g * Work::kValuePitch;
#pragma unroll
    for (int n8 = 0; n8 < kN8; ++n8) {
      gradients.get(d[n8], work, n8);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const TablePlace at(position[n8][e], shift, own_values + e / 2 * 8 * Work::kValuePitch);
        d[n8][e] *= at.weight == 0.0F ? 0.0F : at.slope;
      }
    }
  }
  /// The gates' gradients become the scores', as fragments before products need registers.
  __device__ void make_fragments(FragmentA<T> (&dscores)[kN8 / 2], float (&d)[kN8][4],
                                 const float (&score)[kN8][4], const float (&gate)[kN8][4],
                                 const Gates<Lines::kLong>& gates) const {
#pragma unroll
    for (int n8 = 0; n8 < kN8; n8 += 2) {
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        float& dt = d[n8 + e / 4][e % 4];
        dt *= gates.slope(gate[n8 + e / 4][e % 4]);
        dscale = fmaf(dt, score[n8 + e / 4][e % 4], dscale);
        doffset += dt;
        dt *= gates.given_scale;
      }
      dscores[n8 / 2] = as_a<T>(d[n8], d[n8 + 1]);
    }
  }
};

template <class T, class Lines>
__global__ void __launch_bounds__(Lines::kThreads, BackwardSmem<Lines>::kBlocks)
    backward_kernel(const __grid_constant__ BackwardKernelParams params) {
  using Work = WarpSmem<Lines>;
  using Smem = BackwardSmem<Lines>;
  constexpr int kN8 = Lines::kN8, kColumns = kHeadSize / 8;
  constexpr int kRow = kRowBytes<kHeadSize>, kTileRows = 16 * kRow;
  extern __shared__ __align__(kSharedAlignment) unsigned char smem[];
  unsigned char* const table = smem + Smem::kBuffers * Smem::kTokenBytes;
  unsigned char* const all_staging = table + Lines::kTableBytes;
  unsigned char* const all_work =
      all_staging + (Smem::kOwnStaging ? Lines::kWarps * Work::kRows : 0);
  static_assert((Smem::kTokenBytes / 2 | Lines::kTableBytes) % kSharedAlignment == 0);
  const Padded<T> all_bins{all_work + Lines::kWarps * Work::kBytes, Work::kBinPitch};

  const Params& p = params.all.stage;
  const Block block(p, 0, params.grid);
  using Sums = ParameterSums<Lines>;
  static_assert(Sums::kBytes <= Lines::kWarps * Work::kBytes);
  unsigned char* const sums_own = all_bins.data + Lines::kWarps * Work::kBinBytes;
  Sums sums(all_work, sums_own);
  const Tokens<T, Lines, Smem::kBuffers> tokens{
      smem, reinterpret_cast<Mbarrier*>(sums_own + sizeof(typename Sums::Own)), p, block,
      params.maps};
  const AxisLines& axis = block.axis;
  const LdmatrixOffsets<kHeadSize> offsets;
  const Warp<Lines> warp;
  const Lane lane;
  Gradients<T, Lines> gradients(params.all.gradients, p.geometry, block.batch_head);

  unsigned char* const work = all_work + warp.index * Work::kBytes;
  unsigned char* const bins = all_bins.data + warp.index * Work::kBinBytes;
  unsigned char* const dq_staging = aligned_shared(work + Work::kScores);
  unsigned char* const dk_staging =
      Smem::kOwnStaging ? all_staging + warp.index * Work::kRows : dq_staging;
  const std::uint32_t rows = warp.index * kTileRows;
  const std::uint32_t line_rows = warp.line * Lines::kLong * kRow;
  std::uint32_t q_at, k_at, source;  // in the buffer that is at work
  const std::uint32_t window = shared_address(table) + Lines::window(warp.own) * kRow;
  const float shift = kFloorShift + Lines::origin(warp.own);

  // Short lines' tables are 16 rows a warp, summed up in registers.
  constexpr bool kKeepsTable = Sums::kRounds == 1;
  using TableParts = typename Sums::Parts;
  [[maybe_unused]] TableParts dtable = {};
  float dscale = 0.0F, doffset = 0.0F;
  float* dtables = params.all.dtables[0];
  if (dtables != nullptr) dtables += std::int64_t(sums.entry()) * axis.positions * kHeadSize;
  const bool gradients_are_ready = params.second || params.all.gradients_are_ready;
  const BackwardTile<T, Lines> steps{
      params, axis, warp,    lane,   offsets, all_bins,  source,
      window, sums, dtables, dscale, doffset, gradients, gradients_are_ready};
  // Long lines' tables are summed up line by line, so all blocks of a cluster go on to the end.
  const int last_line = kKeepsTable ? block.last_line : block.first_line + params.grid.lines;
  tokens.prepare();
  if (block.first_line < last_line) tokens.load(block.first_line, 0);
  const Table<T, Lines> table_rows(p, block, 0);
  if (Smem::kAhead && gradients_are_ready) steps.ask_for_gradients(block.first_line, true);
  const Gates<Lines::kLong> gates(p, block.head);
  sums.prepare();
  table_rows.keep(table);
  for (int line = block.first_line; line < last_line; line += Lines::kLines) {
    const int next_line = line + Lines::kLines;
    if (line > block.first_line) {
      __syncthreads();
      if constexpr (!Smem::kAhead) tokens.load(line, 0);
    }
    if constexpr (!Smem::kAhead) steps.ask_for_gradients(line, true);
    const int turn = (line - block.first_line) / Lines::kLines, buffer = turn % Smem::kBuffers;
    q_at = shared_address(tokens.q(buffer));
    k_at = shared_address(tokens.k(buffer));
    source = p.first_from_q ? q_at : k_at;
    for (int i = threadIdx.x % 32; i < Work::kBinBytes / 16; i += 32)
      reinterpret_cast<uint4*>(bins)[i] = make_uint4(0, 0, 0, 0);
    // The first ones, if they are still in the making, come as late as they may.
    const bool are_asked_for = !Smem::kAhead || turn > 0 || gradients_are_ready;
    if (are_asked_for) gradients.keep(work);
    __syncthreads();
    tokens.wait(turn);
    const AxisTensor<T> all_dq(params.all.dq, p, block), all_dk(params.all.dk, p, block);
    if constexpr (Smem::kAhead)
      if (next_line < last_line) tokens.load(next_line, buffer ^ 1);

    float score[kN8][4], gate[kN8][4], d[kN8][4];
    make_scores<T>(score, q_at + rows + offsets.a, k_at + line_rows + offsets.b_rows);
    {
      float position[kN8][4];
      make_positions<Lines>(position, gate, score, gates, axis.length, warp.own);
      float* const values = reinterpret_cast<float*>(work);
      make_values<T, Lines::kWindow, Work::kValuePitch>(values, source + rows + offsets.a,
                                                        window + offsets.b_rows);
      if (!are_asked_for) {
        steps.ask_for_gradients(line, true);
        gradients.keep(work);
      }
      __syncwarp();
      steps.times_slopes(d, position, work, shift);
      __syncwarp();
      keep_positions<Lines>(work, position);
      __syncwarp();
    }
    // Steps beside sums hide each other's delays, where registers allow it.
    const auto spread = [&] { spread_over_bins<T, Lines>(work, bins, Lines::origin(warp.own)); };
    if constexpr (!Smem::kAhead) spread();

    gate_gradients<Lines>(d, warp.own);
    if constexpr (!Lines::kSuffix) clear_own_place(d, warp.own);
    FragmentA<T> dscores[kN8 / 2];
    steps.make_fragments(dscores, d, score, gate, gates);
    if constexpr (Smem::kAhead) spread();

#pragma unroll
    for (int i = 0; i < kN8 / 2; ++i)
      Padded<T>{work, Work::kScorePitch}.store(0, 16 * i, dscores[i]);
    float c[kColumns][4] = {};
    if (p.first_from_q) steps.add_source(c);
#pragma unroll
    for (int i = 0; i < kN8 / 2; ++i)
      mma_columns(c, dscores[i], k_at + line_rows + i * kTileRows + offsets.b_columns);
    pdl_wait();
    pdl_launch_dependents();
    add_to_rows<T>(params.dq, all_dq, c, dq_staging, block, line + warp.line, warp.own, false);
    if constexpr (Smem::kAhead) steps.ask_for_gradients(next_line, next_line < last_line);
    __syncthreads();

    // dk from all patches of the line, and the tables' gradients from all in work.
    clear(c);
    if (!p.first_from_q) steps.add_source(c);
#pragma unroll
    for (int i = 0; i < Lines::kTiles; ++i) {
      const int tile = warp.line * Lines::kTiles + i;
      const Padded<T> of_tile{all_work + tile * Work::kBytes, Work::kScorePitch};
      FragmentA<T> a;
      ldmatrix_x4_trans(a.r, of_tile.b_rows(0) + warp.own * 2);
      mma_columns(c, a, q_at + tile * kTileRows + offsets.b_columns);
    }
    steps.free_staging();
    add_to_rows<T>(params.dk, all_dk, c, dk_staging, block, line + warp.line, warp.own,
                   params.all.begins_dk && !params.second);
    steps.free_staging();

    if (!kKeepsTable || next_line >= last_line) sums.release_buffer();
    if constexpr (kKeepsTable) {
      if (dtables != nullptr) steps.add_tables(dtable[0], warp.first_row);
    } else {
      TableParts parts = {};
      if (dtables != nullptr) {
#pragma unroll
        for (int round = 0; round < Sums::kRounds; ++round)
          steps.add_tables(parts[round], round * Lines::kRows + warp.first_row);
      }
      steps.store_sums(parts, line > block.first_line, next_line >= last_line);
    }
  }
  // Blocks without lines have done nothing, and what follows takes others' memory.
  if (kKeepsTable && block.first_line >= last_line) sums.release_buffer();
  pdl_wait();
  pdl_launch_dependents();
  if constexpr (kKeepsTable) steps.store_sums(dtable, false, true);
  tma_store_wait();
}

template <class T>
bool backward(const BackwardParams& p, cudaStream_t stream) {
  const auto& axes = p.stage.axes;
  BackwardKernelParams calls[2] = {backward_kernel_params(p, 0), backward_kernel_params(p, 1)};
  bool are_mapped = true;
  for (int axis = 0; axis < 2; ++axis)
    dispatch_lines(axes[axis], p.stage.span, [&](auto lines) {
      auto& call = calls[axis];
      are_mapped = are_mapped &&
                   make_token_maps<T, decltype(lines)>(p.stage, axes[axis], &call.maps) &&
                   make_row_map<T>(p.dq, p.stage, axes[axis], &call.dq) &&
                   make_row_map<T>(p.dk, p.stage, axes[axis], &call.dk);
    });
  if (!are_mapped) return false;
  for (int axis = 0; axis < 2; ++axis)
    dispatch_lines(axes[axis], p.stage.span, [&](auto lines) {
      using Lines = decltype(lines);
      launch(backward_kernel<T, Lines>, p.stage.geometry.batch_heads * axes[axis].chunks,
             {.cluster = axes[axis].cluster, .overlapping = true}, Lines::kThreads,
             BackwardSmem<Lines>::kBytes, stream, calls[axis]);
    });
  return true;
}

}  // namespace sape2::kernels::cuda::axis_vectors::specialized
