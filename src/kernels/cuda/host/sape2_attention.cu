// Entry points of attention with both stages.
#include "kernels/cuda/attention_head/call.h"
#include "kernels/cuda/axis_vectors/params.h"
#include "kernels/cuda/axis_vectors/specialized/kernels.h"
#include "kernels/cuda/common/element.cuh"
#include "kernels/cuda/common/partial_sums.h"
#include "kernels/cuda/host/arena.h"
#include "kernels/cuda/host/attention_calls.h"
#include "kernels/cuda/host/axis_vectors.h"
#include "kernels/cuda/host/call.h"
#include "kernels/cuda/host/device.h"
#include "kernels/cuda/host/launch.h"
#include "kernels/cuda/host/params.h"
#include "kernels/cuda/host/scratch.h"

#include <limits>

namespace sape2::kernels::cuda {
namespace {

template <class T>
void prepare_sape2(const axis_vectors::Params& stage, Form form, const VectorScratch& v,
                   cudaStream_t stream) {
  const bool distance = form == Form::distance;
  if constexpr (!kIsFp32<T>) {
    axis_vectors::specialized::Outputs to{};
    for (int axis = 0; axis < 2; ++axis) {
      to.vectors[axis] = v.vectors[axis];
      to.widths[axis] = v.widths[axis];
      to.squared_lengths[axis] = v.norms[axis];
      if (distance) to.centers[axis] = static_cast<float*>(v.gradients[axis]);
    }
    if (axis_vectors::specialized::forward<T>(stage, to, stream)) return;
  }
  axis_vectors::forward<T>({.stage = stage, .vectors = own_places(form, v)}, stream);
  if (distance) center_vectors<T>(stage.geometry, v, stream);
}

/// Stage 1 of a call in tiles, its sums added up in clusters where kernels know how.
axis_vectors::Params stage_in_tiles(const AttentionInputs& in, const Geometry& g,
                                    const Encoding& encoding) {
  auto stage = axis_vector_params(g, in.q, in.k, encoding);
  if (in.dtype != DType::float32 && axis_vectors::specialized::sizes_fit(stage) && is_sm90a())
    for (auto& axis : stage.axes) axis_vectors::form_clusters(axis, g);
  return stage;
}

/// Whether sizes let stage 1's backward pass come before the dk/dv pass, which then adds to dk:
/// both leave it to TMA.
bool may_begin_dk(const AttentionInputs& in, Form form, const axis_vectors::Params& stage) {
  return form == Form::direct && in.dtype != DType::float32 &&
         axis_vectors::specialized::sizes_fit(stage) && is_sm90a();
}

/// Stage 1's partial sums take the place of what attention needs no more; of the vectors, too,
/// unless its last pass is still to come.
AxisVectorScratch sums_of_stage_one(Arena& arena, const axis_vectors::Params& stage,
                                    const VectorScratch& vectors, bool vectors_are_used) {
  const std::size_t end = arena.place();
  arena.return_to(vectors_are_used ? end : vectors.first_gradients);
  return {arena, stage, vectors_are_used ? end : vectors.begin};
}

/// Memory the caller keeps from forward to backward, as large as the size function says.
Arena saved_memory(const void* data) {
  return {const_cast<void*>(data), std::numeric_limits<std::size_t>::max()};
}

}  // namespace

std::size_t sape2_attention_stage1_bytes(const AttentionInputs& in, const Encoding& encoding,
                                         Form form) {
  check_shape(in.shape, in.dtype, form, sets_of(encoding));
  check_encoding(encoding);
  const auto geometry = geometry_of(in.shape, in.dtype, {});
  const head::Call head(in, geometry, encoding, bias_form(form, sets_of(encoding)));
  if (head.fits()) return head.stage1_bytes();
  Arena workspace, saved;
  VectorScratch(workspace, saved, geometry, in.dtype, form, sets_of(encoding), false);
  return saved.used();
}

std::size_t sape2_attention_workspace(const AttentionInputs& in, const Encoding& encoding,
                                      Form form, bool backward, bool saved) {
  check_shape(in.shape, in.dtype, form, sets_of(encoding));
  check_encoding(encoding);
  const auto geometry = geometry_of(in.shape, in.dtype, {});
  const head::Call head(in, geometry, encoding, bias_form(form, sets_of(encoding)));
  if (head.fits()) return backward ? head.backward_workspace(saved) : 0;
  Arena arena, elsewhere;
  if (backward) BackwardScratch(arena, geometry);
  const VectorScratch vectors(arena, saved ? elsewhere : arena, geometry, in.dtype, form,
                              sets_of(encoding), backward);
  if (backward) {
    const auto stage = stage_in_tiles(in, geometry, encoding);
    sums_of_stage_one(arena, stage, vectors, !saved && may_begin_dk(in, form, stage));
  }
  return arena.used();
}

void sape2_attention_forward(const AttentionInputs& in, const Encoding& encoding, Form form,
                             const Bias& bias, const AttentionOutputs& outputs,
                             const Launch& launch) {
  check_shape(in.shape, in.dtype, form, sets_of(encoding));
  check_encoding(encoding);
  const auto geometry = forward_geometry(in, outputs);
  auto p = attention_params(in, geometry, bias);
  p.out = outputs.out;
  p.softmax = outputs.softmax;
  const head::Call head(in, geometry, encoding, bias_form(form, sets_of(encoding)));
  if (head.fits()) return head.forward(p, stream_of(launch), outputs.stage1);
  Arena arena(launch.workspace, launch.workspace_bytes), stage1 = saved_memory(outputs.stage1);
  const VectorScratch scratch(arena, outputs.stage1 != nullptr ? stage1 : arena, geometry, in.dtype,
                              form, sets_of(encoding), false);
  p.vectors = scratch.view();
  const auto stage = stage_in_tiles(in, geometry, encoding);
  const auto stream = stream_of(launch);
  dispatch_type(in.dtype, [&](auto type) {
    using T = decltype(type);
    prepare_sape2<T>(stage, form, scratch, stream);
    attend<T>(in, p, bias_form(form, stage.sets), stream);
  });
}

void sape2_attention_backward(const AttentionInputs& in, const Encoding& encoding, Form form,
                              const Bias& bias, const AttentionSaved& saved,
                              const AttentionGradients& d,
                              const EncodingGradients& encoding_gradients, float* dgain,
                              const Launch& launch) {
  check_shape(in.shape, in.dtype, form, sets_of(encoding));
  check_encoding(encoding);
  const auto geometry = backward_geometry(in, saved, d);
  auto p = backward_params(attention_params(in, geometry, bias), saved, d);
  const head::Call head(in, geometry, encoding, bias_form(form, sets_of(encoding)));
  if (head.fits())
    return head.backward(p, {}, {.encoding = encoding_gradients, .dgain = dgain}, launch,
                         saved.stage1);
  Arena arena(launch.workspace, launch.workspace_bytes), stage1 = saved_memory(saved.stage1);
  const bool is_saved = saved.stage1 != nullptr;
  const BackwardScratch backward(arena, geometry);
  const VectorScratch vectors(arena, is_saved ? stage1 : arena, geometry, in.dtype, form,
                              sets_of(encoding), true);
  const auto stage = stage_in_tiles(in, geometry, encoding);
  const bool may_begin = may_begin_dk(in, form, stage);
  const auto partial = sums_of_stage_one(arena, stage, vectors, !is_saved && may_begin);

  p.forward.vectors = vectors.view();
  p.delta = backward.delta;
  p.dx = vectors.gradients[0];
  p.dy = vectors.gradients[1];
  if (dgain != nullptr) p.dgain = backward.dgain;
  const auto stream = stream_of(launch);
  SumJobs sums{.images = in.shape.images, .heads = geometry.heads};
  dispatch_type(in.dtype, [&](auto type) {
    using T = decltype(type);
    if (!is_saved) prepare_sape2<T>(stage, form, vectors, stream);
    auto back = axis_vector_backward_params(stage, gradient_places(form, vectors, false), d.dq,
                                            d.dk, encoding_gradients, partial);
    const auto go_back = [&](const VectorGradients& made) {
      back.gradients.fp32 = made.fp32;
      // Made by the dq pass, with the dk/dv pass since.
      back.gradients_are_ready = form == Form::direct && !made.before_keys;
      back.begins_dk = sums.are_old = made.before_keys;
      axis_vectors::backward<T>(back, stream);
    };
    attend_backward<T>(in, p, bias_form(form, stage.sets), stream,
                       {go_back, may_begin && axis_vectors::specialized::serves(back)});
  });
  sum_dgain(sums, geometry, backward.dgain, dgain);
  sum_axis_vector_gradients(sums, stage, encoding, encoding_gradients, partial);
  add_partial_sums(sums, stream);
}

}  // namespace sape2::kernels::cuda
