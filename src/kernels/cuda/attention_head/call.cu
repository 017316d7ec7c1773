#include "kernels/cuda/attention_head/call.h"
#include "kernels/cuda/attention_head/kernels.h"
#include "kernels/cuda/attention_head/layout.h"
#include "kernels/cuda/common/element.cuh"
#include "kernels/cuda/common/partial_sums.h"
#include "kernels/cuda/host/arena.h"
#include "kernels/cuda/host/call.h"
#include "kernels/cuda/host/device.h"
#include "kernels/cuda/host/params.h"

#include <algorithm>

namespace sape2::kernels::cuda::head {
namespace {

/// What a backward call keeps between its launches, laid out in the caller's workspace.
struct BackwardScratch {
  void* saved;  // stage 1, if forward did not save it
  float *lines, *dtables, *dgate_scale, *dgate_offset, *dgain;

  /// `to_save`: bytes of stage 1 that forward has not saved.
  BackwardScratch(Arena& arena, const ForwardParams& p, BiasForm form, std::size_t to_save) {
    const auto& g = p.attention.geometry;
    const std::int64_t blocks = std::int64_t(p.blocks_per_head) * g.heads;
    const int sets_apart = form == BiasForm::distance_pair ? 2 : 1;
    const std::int64_t positions = p.stage.axes[0].positions + p.stage.axes[1].positions;
    saved = arena.take_bytes(p.layout.saves ? to_save : 0);
    lines = arena.take_floats(p.has_tables && !p.layout.saves
                                  ? blocks * p.layout.warps * scratch_entries(p.layout.grid, g) *
                                        (kScratchNumbers + sets_apart) * 32
                                  : 0);
    dtables = arena.take_floats(p.has_tables ? blocks * p.stage.sets * positions * g.head_size : 0);
    dgate_scale = arena.take_floats(blocks);
    dgate_offset = arena.take_floats(blocks);
    dgain = arena.take_floats(blocks);
  }
};

/// One number of each block.
void add_sum(SumJobs& sums, const float* partials, float* out) {
  SumJob job;
  job.parts[0] = {partials, 1, 1, 0};
  job.out = out;
  sums.add(job);
}

}  // namespace

Call::Call(const AttentionInputs& in, const Geometry& g) : dtype_(in.dtype), form_(BiasForm::none) {
  stage_.geometry = without_grid(g);
}

Call::Call(const AttentionInputs& in, const Geometry& g, const AxisVectors& vectors, BiasForm form)
    : dtype_(in.dtype), form_(form), given_{vectors.x, vectors.y} {
  stage_.geometry = g;
  stage_.sets = static_cast<int>(vectors.sets);
}

Call::Call(const AttentionInputs& in, const Geometry& g, const Encoding& encoding, BiasForm form)
    : dtype_(in.dtype),

      form_(form),
      stage_(axis_vector_params(g, in.q, in.k, encoding)),
      has_tables_(true),
      tables_per_head_(encoding.tables_per_head),
      table_rows_(encoding.positions) {}

ForwardParams Call::forward_params(const AttentionParams& p, bool backward) const {
  const auto& g = stage_.geometry;
  ForwardParams head{.attention = p,
                     .stage = stage_,
                     .has_tables = has_tables_,
                     .given = {given_[0], given_[1]},
                     .layout = make_layout(stage_, has_tables_, form_, backward, current_device()),
                     .images = static_cast<int>(g.batch_heads / g.heads)};
  head.attention.geometry = g;
  head.blocks_per_head =
      cuda::head::blocks_per_head(g, form_, head.layout, backward, current_device());
  return head;
}

Call Call::of_rows_aligned(bool aligned) const {
  Call call = *this;
  call.stage_.geometry.aligned = aligned;
  return call;
}

std::size_t Call::stage1_bytes() const {
  const auto layout =
      make_layout(of_rows_aligned(true).stage_, has_tables_, form_, true, current_device());
  return layout.saves ? stage_.geometry.batch_heads * layout.warps * saved_chunks(layout.grid) *
                            32 * sizeof(uint4)
                      : 0;
}

std::size_t Call::backward_workspace(bool saved) const {
  std::size_t most = 0;
  for (const bool aligned : {false, true}) {  // which is known later
    const auto call = of_rows_aligned(aligned);
    AttentionParams p{};
    Arena arena;
    BackwardScratch(arena, call.forward_params(p, true), form_, saved ? 0 : stage1_bytes());
    most = std::max(most, arena.used());
  }
  return most;
}

void Call::forward(const AttentionParams& p, cudaStream_t stream, void* saved) const {
  auto head = forward_params(p, false);
  if (stage1_bytes() > 0) head.saved = static_cast<uint4*>(saved);
  if (dtype_ == DType::bfloat16) return head::forward<Bf16>(head, form_, stream);
  head::forward<Fp16>(head, form_, stream);
}

void Call::backward(const AttentionBackwardParams& p, const AxisVectorGradients& vectors,
                    const ParameterGradients& parameters, const Launch& launch,
                    const void* saved) const {
  BackwardParams head{.forward = forward_params(p.forward, true),
                      .out = p.out,
                      .dout = p.dout,
                      .dq = p.dq,
                      .dk = p.dk,
                      .dv = p.dv,
                      .dgiven = {vectors.dx, vectors.dy}};
  Arena arena(launch.workspace, launch.workspace_bytes);
  const BackwardScratch scratch(arena, head.forward, form_, saved != nullptr ? 0 : stage1_bytes());
  const auto stream = stream_of(launch);
  if (head.forward.layout.saves) {
    head.forward.saved =
        static_cast<uint4*>(saved != nullptr ? const_cast<void*>(saved) : scratch.saved);
    if (saved == nullptr) forward(p.forward, stream, scratch.saved);  // without `out`
  }
  const auto& wanted = parameters.encoding;
  SumJobs sums{.images = head.forward.blocks_per_head, .heads = stage_.geometry.heads};
  if (has_tables_) {
    head.scratch = scratch.lines;
    const std::int64_t head_size = stage_.geometry.head_size;
    const std::int64_t positions = stage_.axes[0].positions + stage_.axes[1].positions;
    for (int set = 0; set < stage_.sets; ++set)
      for (int axis = 0; axis < 2; ++axis) {
        const auto& lines = stage_.axes[axis];
        const auto& tables = set == 0 && stage_.first_from_q ? wanted.q_tables : wanted.k_tables;
        SumJob job;
        job.parts[0] = {scratch.dtables, 1, stage_.sets * positions * head_size,
                        (set * positions + axis * stage_.axes[0].positions) * head_size};
        job.out = axis ? tables.dy : tables.dx;
        job.out_elements = table_rows_ * head_size;
        job.first = lines.table_first * head_size;
        job.elements = lines.positions * head_size;
        job.per_head = tables_per_head_;
        sums.add(job);
        if (job.out != nullptr) head.dtables = scratch.dtables;
      }
    if (wanted.dgate_scale != nullptr) head.dgate_scale = scratch.dgate_scale;
    if (wanted.dgate_offset != nullptr) head.dgate_offset = scratch.dgate_offset;
    add_sum(sums, scratch.dgate_scale, wanted.dgate_scale);
    add_sum(sums, scratch.dgate_offset, wanted.dgate_offset);
  }
  if (parameters.dgain != nullptr) head.dgain = scratch.dgain;
  add_sum(sums, scratch.dgain, parameters.dgain);
  if (dtype_ == DType::bfloat16) {
    head::backward<Bf16>(head, form_, stream);
  } else {
    head::backward<Fp16>(head, form_, stream);
  }
  add_partial_sums(sums, stream);
}

}  // namespace sape2::kernels::cuda::head
