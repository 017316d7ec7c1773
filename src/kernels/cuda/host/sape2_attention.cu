// Entry points of attention with both stages.
#include "kernels/cuda/attention_head/call.h"
#include "kernels/cuda/axis_vectors/generic/kernels.h"
#include "kernels/cuda/axis_vectors/params.h"
#include "kernels/cuda/axis_vectors/specialized/kernels.h"
#include "kernels/cuda/common/element.cuh"
#include "kernels/cuda/common/partial_sums.h"
#include "kernels/cuda/host/arena.h"
#include "kernels/cuda/host/attention_calls.h"
#include "kernels/cuda/host/axis_vectors.h"
#include "kernels/cuda/host/call.h"
#include "kernels/cuda/host/device.h"
#include "kernels/cuda/host/dispatch.h"
#include "kernels/cuda/host/geometry.h"
#include "kernels/cuda/host/launch.h"
#include "kernels/cuda/host/params.h"
#include "kernels/cuda/host/scratch.h"

#include <limits>

namespace sape2::kernels::cuda {
namespace {

template <class T>
void make_vectors(const Choice& choice, const axis_vectors::Params& stage, Form form,
                  const VectorScratch& v, cudaStream_t stream) {
  const bool distance = form == Form::distance;
  if constexpr (!kIsFp32<T>) {
    axis_vectors::specialized::Outputs to{};
    for (int axis = 0; axis < 2; ++axis) {
      to.vectors[axis] = v.vectors[axis];
      to.widths[axis] = v.widths[axis];
      to.squared_lengths[axis] = v.norms[axis];
      if (distance) to.centers[axis] = static_cast<float*>(v.gradients[axis]);
    }
    if (choice.stage1 == Stage1::specialized &&
        axis_vectors::specialized::forward<T>(stage, to, stream))
      return;
  }
  axis_vectors::generic::forward<T>({.stage = stage, .vectors = own_places(form, v)}, stream);
  if (distance) center_vectors<T>(stage.geometry, v, stream);
}

template <class T>
void vectors_backward(const Choice& choice, const axis_vectors::BackwardParams& p,
                      cudaStream_t stream) {
  if constexpr (!kIsFp32<T>)
    if (choice.stage1 == Stage1::specialized && axis_vectors::specialized::backward<T>(p, stream))
      return;
  if (p.begins_dk)
    throw Error(
        "CUDA: TMA does not take the strides of q, k or their gradients; pass contiguous tensors");
  axis_vectors::generic::backward<T>(p, stream);
}

/// A call as dispatch sees it. `more`: dq and dk, backward.
Call sape2_call(const AttentionInputs& in, const Geometry& g, const Encoding& encoding, Form form,
                bool backward, std::initializer_list<View> more = {}) {
  Call call = plain_call(in, g, backward);
  call.op = Operator::sape2;
  call.form = form;
  call.source = encoding.source;
  call.span = encoding.span;
  call.positions = encoding.positions;
  const Tables& tables = encoding.source == Source::k ? encoding.k_tables : encoding.q_tables;
  for (const float* table : {tables.x, tables.y})
    call.tables_aligned = call.tables_aligned && reinterpret_cast<std::uintptr_t>(table) % 16 == 0;
  const auto is_short = [&](std::int64_t token_stride) {
    return g.padded_tokens * token_stride < 0x7fffffff;
  };
  call.short_strides = is_short(in.q.token_stride) && is_short(in.k.token_stride);
  for (const View& view : more) {
    call.short_strides = call.short_strides && is_short(view.token_stride);
    call.wants_dq_dk = call.wants_dq_dk && view.data != nullptr;
  }
  return call;
}

Choice choose_checked(const Call& call, const Encoding& encoding) {
  check_encoding(encoding);
  check_call(call);
  return choose(call, current_device());
}

/// Stage 1 of a call in tiles.
axis_vectors::Params stage_in_tiles(const Choice& choice, const AttentionInputs& in,
                                    const Geometry& g, const Encoding& encoding) {
  auto stage = axis_vector_params(g, in.q, in.k, encoding);
  if (choice.stage1_in_clusters)
    for (auto& axis : stage.axes) axis_vectors::form_clusters(axis, g);
  return stage;
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
  check_shape(in.shape);
  const auto geometry = geometry_of(in.shape, in.dtype, {});
  const auto choice = choose_checked(sape2_call(in, geometry, encoding, form, false), encoding);
  if (choice.attention == Attention::head)
    return head::Call(in, geometry, encoding, bias_form(form, sets_of(encoding))).stage1_bytes();
  Arena workspace, saved;
  VectorScratch(workspace, saved, geometry, in.dtype, form, sets_of(encoding), false);
  return saved.used();
}

std::size_t sape2_attention_workspace(const AttentionInputs& in, const Encoding& encoding,
                                      Form form, bool backward, bool saved) {
  check_shape(in.shape);
  const auto geometry = geometry_of(in.shape, in.dtype, {});
  const auto choice = choose_checked(sape2_call(in, geometry, encoding, form, backward), encoding);
  if (choice.attention == Attention::head)
    return backward ? head::Call(in, geometry, encoding, bias_form(form, sets_of(encoding)))
                          .backward_workspace(saved)
                    : 0;
  Arena arena, elsewhere;
  if (backward) BackwardScratch(arena, geometry);
  const VectorScratch vectors(arena, saved ? elsewhere : arena, geometry, in.dtype, form,
                              sets_of(encoding), backward);
  if (backward) {
    const auto stage = stage_in_tiles(choice, in, geometry, encoding);
    sums_of_stage_one(arena, stage, vectors, !saved && may_begin_dk(choice, form));
  }
  return arena.used();
}

void sape2_attention_forward(const AttentionInputs& in, const Encoding& encoding, Form form,
                             const Bias& bias, const AttentionOutputs& outputs,
                             const Launch& launch) {
  check_shape(in.shape);
  const auto geometry = forward_geometry(in, outputs);
  const auto choice = choose_checked(sape2_call(in, geometry, encoding, form, false), encoding);
  auto p = attention_params(in, geometry, bias);
  p.out = outputs.out;
  p.softmax = outputs.softmax;
  if (choice.attention == Attention::head)
    return head::Call(in, geometry, encoding, bias_form(form, sets_of(encoding)))
        .forward(p, stream_of(launch), outputs.stage1);
  Arena arena(launch.workspace, launch.workspace_bytes), stage1 = saved_memory(outputs.stage1);
  const VectorScratch scratch(arena, outputs.stage1 != nullptr ? stage1 : arena, geometry, in.dtype,
                              form, sets_of(encoding), false);
  p.vectors = scratch.view();
  const auto stage = stage_in_tiles(choice, in, geometry, encoding);
  const auto stream = stream_of(launch);
  dispatch_type(in.dtype, [&](auto type) {
    using T = decltype(type);
    make_vectors<T>(choice, stage, form, scratch, stream);
    attend<T>(choice, in, p, bias_form(form, stage.sets), stream);
  });
}

void sape2_attention_backward(const AttentionInputs& in, const Encoding& encoding, Form form,
                              const Bias& bias, const AttentionSaved& saved,
                              const AttentionGradients& d,
                              const EncodingGradients& encoding_gradients, float* dgain,
                              const Launch& launch) {
  check_shape(in.shape);
  const auto geometry = backward_geometry(in, saved, d);
  const auto choice =
      choose_checked(sape2_call(in, geometry, encoding, form, true, {d.dq, d.dk}), encoding);
  auto p = backward_params(attention_params(in, geometry, bias), saved, d);
  if (choice.attention == Attention::head)
    return head::Call(in, geometry, encoding, bias_form(form, sets_of(encoding)))
        .backward(p, {}, {.encoding = encoding_gradients, .dgain = dgain}, launch, saved.stage1);
  Arena arena(launch.workspace, launch.workspace_bytes), stage1 = saved_memory(saved.stage1);
  const bool is_saved = saved.stage1 != nullptr;
  const BackwardScratch backward(arena, geometry);
  const VectorScratch vectors(arena, is_saved ? stage1 : arena, geometry, in.dtype, form,
                              sets_of(encoding), true);
  const auto stage = stage_in_tiles(choice, in, geometry, encoding);
  const auto partial =
      sums_of_stage_one(arena, stage, vectors, !is_saved && may_begin_dk(choice, form));

  p.forward.vectors = vectors.view();
  p.delta = backward.delta;
  p.dx = vectors.gradients[0];
  p.dy = vectors.gradients[1];
  if (dgain != nullptr) p.dgain = backward.dgain;
  const auto stream = stream_of(launch);
  SumJobs sums{.images = in.shape.images, .heads = geometry.heads};
  dispatch_type(in.dtype, [&](auto type) {
    using T = decltype(type);
    if (!is_saved) {
      // As forward chose: vectors must not be rounded in another way.
      const Call again = sape2_call(in, geometry, encoding, form, false);
      make_vectors<T>(choose(again, current_device()), stage, form, vectors, stream);
    }
    auto back = axis_vector_backward_params(stage, gradient_places(form, vectors, false), d.dq,
                                            d.dk, encoding_gradients, partial);
    const auto go_back = [&](const VectorGradients& made) {
      back.gradients.fp32 = made.fp32;
      // Made by the dq pass, with the dk/dv pass since.
      back.gradients_are_ready = form == Form::direct && !made.before_keys;
      back.begins_dk = sums.are_old = made.before_keys;
      vectors_backward<T>(choice, back, stream);
    };
    attend_backward<T>(choice, in, p, bias_form(form, stage.sets), stream,
                       {go_back, choice.stage1_before_dkdv});
  });
  sum_dgain(sums, geometry, backward.dgain, dgain);
  sum_axis_vector_gradients(sums, stage, encoding, encoding_gradients, partial);
  add_partial_sums(sums, stream);
}

}  // namespace sape2::kernels::cuda
