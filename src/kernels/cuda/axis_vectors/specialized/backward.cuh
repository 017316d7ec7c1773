#pragma once

#include "kernels/cuda/arch/ldmatrix.cuh"
#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/arch/pdl.cuh"
#include "kernels/cuda/arch/tma.cuh"
#include "kernels/cuda/axis_vectors/line.cuh"
#include "kernels/cuda/axis_vectors/params.h"
#include "kernels/cuda/axis_vectors/specialized/backward_smem.cuh"
#include "kernels/cuda/axis_vectors/specialized/backward_steps.cuh"
#include "kernels/cuda/axis_vectors/specialized/backward_tile.cuh"
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

template <class T, class Lines>
__global__ void __launch_bounds__(Lines::kThreads, BackwardSmem<Lines>::kBlocks)
    backward_kernel(const __grid_constant__ BackwardKernelParams params) {
  using Smem = BackwardSmem<Lines>;
  using Sums = ParameterSums<Lines>;
  using Steps = BackwardTile<T, Lines>;
  constexpr int kN8 = Lines::kN8, kColumns = kHeadSize / 8;
  extern __shared__ __align__(kSharedAlignment) unsigned char smem[];
  unsigned char* const table = smem + Smem::kTable;
  const Padded<T> all_bins{smem + Smem::kBins, WarpSmem<Lines>::kBinPitch};
  const Params& p = params.all.stage;
  const Block block(p, 0, params.grid);
  const AxisLines& axis = block.axis;
  Sums sums(smem + Smem::kWork, smem + Smem::kSums);
  const Tokens<T, Lines, Smem::kBuffers> tokens{
      smem, reinterpret_cast<Mbarrier*>(smem + Smem::kBarriers), p, block, params.maps};
  const LdmatrixOffsets<kHeadSize> offsets;
  const Warp<Lines> warp;
  const Lane lane;
  Gradients<T, Lines> gradients(params.all.gradients, p.geometry, block.batch_head);
  const WarpPlaces<T, Lines> places(smem, warp);
  std::uint32_t q_at, k_at, source;  // in the buffer that is at work
  const std::uint32_t window = shared_address(table) + Lines::window(warp.own) * Steps::kRow;

  // Short lines' tables are 16 rows a warp, summed up in registers.
  constexpr bool kKeepsTable = Steps::kKeepsTable;
  [[maybe_unused]] typename Sums::Parts dtable = {};
  float dscale = 0.0F, doffset = 0.0F;
  float* dtables = params.all.dtables[0];
  if (dtables != nullptr) dtables += std::int64_t(sums.entry()) * axis.positions * kHeadSize;
  const bool gradients_are_ready = params.second || params.all.gradients_are_ready;
  // Long lines' tables are summed up line by line, so all blocks of a cluster go on to the end.
  const int last_line = kKeepsTable ? block.last_line : block.first_line + params.grid.lines;
  const Steps steps{params,   p,      block,   axis,      tokens,
                    warp,     lane,   offsets, all_bins,  places,
                    q_at,     k_at,   source,  window,    sums,
                    dtables,  dscale, doffset, gradients, gradients_are_ready,
                    last_line};
  tokens.prepare();
  if (block.first_line < last_line) tokens.load(block.first_line, 0);
  const Table<T, Lines> table_rows(p, block, 0);
  if (Smem::kAhead && gradients_are_ready) steps.ask_for_gradients(block.first_line, true);
  const Gates<Lines::kLong> gates(p, block.head);
  sums.prepare();
  table_rows.keep(table);
  for (int line = block.first_line; line < last_line; line += Lines::kLines) {
    const int next_line = line + Lines::kLines;
    const bool are_asked_for = steps.begin_lines(line);
    const AxisTensor<T> all_dq(params.all.dq, p, block), all_dk(params.all.dk, p, block);
    steps.load_next_lines(line);

    float score[kN8][4], gate[kN8][4], d[kN8][4];
    steps.make_scores_of_tile(score);
    steps.position_gradients(d, score, gate, gates, line, are_asked_for);
    // Steps beside sums hide each other's delays, where registers allow it.
    if constexpr (!Smem::kAhead) steps.spread();
    gate_gradients<Lines>(d, warp.own);
    if constexpr (!Lines::kSuffix) clear_own_place(d, warp.own);
    FragmentA<T> dscores[kN8 / 2];
    steps.make_fragments(dscores, d, score, gate, gates);
    if constexpr (Smem::kAhead) steps.spread();

    float c[kColumns][4] = {};
    steps.make_dq(c, dscores);
    pdl_wait();
    pdl_launch_dependents();
    add_to_rows<T>(params.dq, all_dq, c, places.dq_staging, block, line + warp.line, warp.own,
                   false);
    if constexpr (Smem::kAhead) steps.ask_for_gradients(next_line, next_line < last_line);
    __syncthreads();
    clear(c);
    steps.make_dk(c);
    steps.free_staging();
    add_to_rows<T>(params.dk, all_dk, c, places.dk_staging, block, line + warp.line, warp.own,
                   params.all.begins_dk && !params.second);
    steps.free_staging();
    steps.add_to_parameters(dtable, line);
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
