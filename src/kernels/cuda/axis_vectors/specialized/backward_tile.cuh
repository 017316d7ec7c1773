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

/// What the backward pass through stage 1 does with a group of lines (backward.cuh).
namespace sape2::kernels::cuda::axis_vectors::specialized {

struct BackwardKernelParams {
  Grid grid;
  bool second;  // it is the second launch
  TokenMaps maps;
  CUtensorMap dq, dk;  // 16 places
  BackwardParams all;  // the launch's axis as number 0, so that its numbers are known places
};

/// Where a warp has what in shared memory.
template <class T, class Lines>
struct WarpPlaces {
  using Smem = BackwardSmem<Lines>;
  using Work = WarpSmem<Lines>;
  unsigned char *work, *bins, *dq_staging, *dk_staging;
  std::uint32_t rows, line_rows;  // its own of the tokens, its line's

  __device__ WarpPlaces(unsigned char* smem, const Warp<Lines>& warp)
      : work(smem + Smem::kWork + warp.index * Work::kBytes),
        bins(smem + Smem::kBins + warp.index * Work::kBinBytes),
        dq_staging(aligned_shared(work + Work::kScores)),
        dk_staging(Smem::kOwnStaging ? smem + Smem::kStaging + warp.index * Work::kRows
                                     : dq_staging),
        rows(warp.index * 16 * kRowBytes<kHeadSize>),
        line_rows(warp.line * Lines::kLong * kRowBytes<kHeadSize>) {}
};

/// The steps of a group of lines, on what the kernel has in registers and in shared memory.
template <class T, class Lines>
struct BackwardTile {
  using Work = WarpSmem<Lines>;
  using Smem = BackwardSmem<Lines>;
  using Sums = ParameterSums<Lines>;
  using TableParts = typename Sums::Parts;
  static constexpr int kN8 = Lines::kN8, kColumns = kHeadSize / 8;
  static constexpr int kRow = kRowBytes<kHeadSize>, kTileRows = 16 * kRow;
  static constexpr bool kKeepsTable = Sums::kRounds == 1;
  using Line = float[kN8][4];
  const BackwardKernelParams& params;
  const Params& p;
  const Block& block;
  const AxisLines& axis;
  const Tokens<T, Lines, Smem::kBuffers>& tokens;
  const Warp<Lines>& warp;
  const Lane& lane;
  const LdmatrixOffsets<kHeadSize>& offsets;
  const Padded<T>& all_bins;
  const WarpPlaces<T, Lines>& places;
  std::uint32_t &q_at, &k_at, &source;  // in the buffer that is at work
  const std::uint32_t& window;
  Sums& sums;
  float* const& dtables;
  float &dscale, &doffset;
  Gradients<T, Lines>& gradients;
  const bool& gradients_are_ready;
  const int& last_line;

  __device__ int turn(int line) const { return (line - block.first_line) / Lines::kLines; }
  /// Waits for the tokens of the lines from `line` on; says whether the vectors' gradients are
  /// asked for.
  __device__ bool begin_lines(int line) const {
    if (line > block.first_line) {
      __syncthreads();
      if constexpr (!Smem::kAhead) tokens.load(line, 0);
    }
    if constexpr (!Smem::kAhead) ask_for_gradients(line, true);
    const int buffer = turn(line) % Smem::kBuffers;
    q_at = shared_address(tokens.q(buffer));
    k_at = shared_address(tokens.k(buffer));
    source = p.first_from_q ? q_at : k_at;
    for (int i = threadIdx.x % 32; i < Work::kBinBytes / 16; i += 32)
      reinterpret_cast<uint4*>(places.bins)[i] = make_uint4(0, 0, 0, 0);
    // The first ones, if they are still in the making, come as late as they may.
    const bool are_asked_for = !Smem::kAhead || turn(line) > 0 || gradients_are_ready;
    if (are_asked_for) gradients.keep(places.work);
    __syncthreads();
    tokens.wait(turn(line));
    return are_asked_for;
  }
  __device__ void load_next_lines(int line) const {
    const int next_line = line + Lines::kLines;
    if constexpr (Smem::kAhead)
      if (next_line < last_line) tokens.load(next_line, turn(line) % Smem::kBuffers ^ 1);
  }
  __device__ void make_scores_of_tile(Line& score) const {
    make_scores<T>(score, q_at + places.rows + offsets.a, k_at + places.line_rows + offsets.b_rows);
  }
  /// Gates, positions and table values again; of positions the gradients, d.
  __device__ void position_gradients(Line& d, const Line& score, Line& gate,
                                     const Gates<Lines::kLong>& gates, int line,
                                     bool are_asked_for) const {
    unsigned char* const work = places.work;
    float position[kN8][4];
    make_positions<Lines>(position, gate, score, gates, axis.length, warp.own);
    make_values<T, Lines::kWindow, Work::kValuePitch>(
        reinterpret_cast<float*>(work), source + places.rows + offsets.a, window + offsets.b_rows);
    if (!are_asked_for) {
      ask_for_gradients(line, true);
      gradients.keep(work);
    }
    __syncwarp();
    times_slopes(d, position, work, kFloorShift + Lines::origin(warp.own));
    __syncwarp();
    keep_positions<Lines>(work, position);
    __syncwarp();
  }
  /// The vectors' gradients to the table values'.
  __device__ void spread() const {
    spread_over_bins<T, Lines>(places.work, places.bins, Lines::origin(warp.own));
  }
  /// From the scores' gradients, which stay in work for dk.
  __device__ void make_dq(float (&c)[kColumns][4], const FragmentA<T> (&dscores)[kN8 / 2]) const {
#pragma unroll
    for (int i = 0; i < kN8 / 2; ++i)
      Padded<T>{places.work, Work::kScorePitch}.store(0, 16 * i, dscores[i]);
    if (p.first_from_q) add_source(c);
#pragma unroll
    for (int i = 0; i < kN8 / 2; ++i)
      mma_columns(c, dscores[i], k_at + places.line_rows + i * kTileRows + offsets.b_columns);
  }
  /// From all patches of the line.
  __device__ void make_dk(float (&c)[kColumns][4]) const {
    if (!p.first_from_q) add_source(c);
    unsigned char* const all_work = places.work - warp.index * Work::kBytes;
#pragma unroll
    for (int i = 0; i < Lines::kTiles; ++i) {
      const int tile = warp.line * Lines::kTiles + i;
      const Padded<T> of_tile{all_work + tile * Work::kBytes, Work::kScorePitch};
      FragmentA<T> a;
      ldmatrix_x4_trans(a.r, of_tile.b_rows(0) + warp.own * 2);
      mma_columns(c, a, q_at + tile * kTileRows + offsets.b_columns);
    }
  }
  /// The tables' gradients from all patches in work; `dtable` has those of short lines.
  __device__ void add_to_parameters(TableParts& dtable, int line) const {
    const bool last = line + Lines::kLines >= last_line;
    if (!kKeepsTable || last) sums.release_buffer();
    if constexpr (kKeepsTable) {
      if (dtables != nullptr) add_tables(dtable[0], warp.first_row);
    } else {
      TableParts parts = {};
      if (dtables != nullptr) {
#pragma unroll
        for (int round = 0; round < Sums::kRounds; ++round)
          add_tables(parts[round], round * Lines::kRows + warp.first_row);
      }
      store_sums(parts, line > block.first_line, last);
    }
  }
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

}  // namespace sape2::kernels::cuda::axis_vectors::specialized
