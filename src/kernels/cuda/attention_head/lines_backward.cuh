#pragma once

#include "kernels/cuda/arch/ldmatrix.cuh"
#include "kernels/cuda/attention_head/kernels.h"
#include "kernels/cuda/attention_head/layout.h"
#include "kernels/cuda/attention_head/lines.cuh"
#include "kernels/cuda/attention_head/lines_generic.cuh"
#include "kernels/cuda/attention_head/lines_specialized.cuh"
#include "kernels/cuda/attention_head/logits.cuh"
#include "kernels/cuda/attention_head/plan.cuh"
#include "kernels/cuda/attention_head/vector_gradients.cuh"
#include "kernels/cuda/common/element.cuh"
#include "kernels/cuda/host/params.h"

namespace sape2::kernels::cuda::head {

/// Gradients of given vectors, of this lane's patch and axis; all sets get the same where the
/// kernel holds their sum.
template <class T>
__device__ void write_line(const BackwardParams& p, const LineWalk& walk, std::int64_t batch_head,
                           int slot, int axis, int first_set, int sets, const float* from) {
  if (p.dgiven[axis] == nullptr || !walk.is_patch) return;
  const auto& g = p.forward.attention.geometry;
  const auto& l = p.forward.layout;
  const std::int64_t patches = g.tokens - g.prefix;
  const int patch = slot / l.row_width * g.cols + slot % l.row_width;
  for (int set = first_set; set < first_set + sets; ++set)
    for (int m = 0; m < walk.length; ++m)
      static_cast<T*>(
          p.dgiven[axis])[((set * g.batch_heads + batch_head) * patches + patch) * walk.length +
                          m] = narrow<T>(from[m]);
}

/// From gradients of a warp's vectors (`lines`, one set behind the other) to those of table values,
/// into `bins_of(set)`, of gates and of scores, added to the square of the logits'; or, without
/// tables, out.
template <class T, BiasForm Form, GridKind Grid, class Saved, class BinsOf>
__device__ void lines_backward(const BackwardParams& params, const Plan& plan, int own_row,
                               int head, std::int64_t batch_head, const float* lines,
                               const ScratchLine<kVectorSets<Form>>& scratch_line,
                               const Saved& line, BinsOf bins_of, const Padded<T>& logits,
                               GateSums& gate_sums) {
  constexpr int kSets = kVectorSets<Form>;
  const auto& p = params.forward;
  const auto& l = plan.layout;
  const int lane = threadIdx.x % 32, row = lane % 16, axis = lane / 16, slot = own_row + row;
  const LineWalk walk(l, plan.geometry, plan.span, slot, axis);
  const float* gradients[kSets];
  T* bins[kSets];
#pragma unroll
  for (int set = 0; set < kSets; ++set) {
    gradients[set] = lines + (set * 16 + row) * l.line_pitch + axis * l.row_width;
    bins[set] = bins_of(set).row(slot) + axis * l.second_table;
  }
  if (plan.has_tables) {
#pragma unroll
    for (int set = 0; set < kSets; ++set) clear_bins(bins_of(set), own_row);
    __syncwarp();
    const Gates gates(p.stage, head);
    if constexpr (Grid == GridKind::any) {
      walk_line_backward<T, kSets>(walk, l, p.stage.axes[axis], axis != 0, gates, p.attention.scale,
                                   gradients, scratch_line, bins, logits.row(slot), slot,
                                   gate_sums);
    } else {
      float d[longest_line(Grid)];
      read_gradients<Grid>(d, walk, gradients[0]);
      walk_specialized_line_backward<T, Grid, specialized_span(Form)>(
          walk, l, p.stage.axes[axis], axis != 0, gates, p.attention.scale, d, line, bins[0],
          logits.row(slot), slot, gate_sums);
    }
  } else {
    __syncwarp();
#pragma unroll
    for (int set = 0; set < kSets; ++set)
      write_line<T>(params, walk, batch_head, slot, axis, set,
                    Form == BiasForm::direct ? plan.sets : 1, gradients[set]);
  }
  __syncwarp();
}

}  // namespace sape2::kernels::cuda::head
