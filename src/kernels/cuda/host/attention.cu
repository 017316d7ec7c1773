// Entry points of attention: plain, and with a bias from given vectors.
#include "kernels/cuda/attention_head/call.h"
#include "kernels/cuda/axis_vectors/exchange.h"
#include "kernels/cuda/common/partial_sums.h"
#include "kernels/cuda/host/arena.h"
#include "kernels/cuda/host/attention_calls.h"
#include "kernels/cuda/host/call.h"
#include "kernels/cuda/host/device.h"
#include "kernels/cuda/host/geometry.h"
#include "kernels/cuda/host/params.h"
#include "kernels/cuda/host/scratch.h"

namespace sape2::kernels::cuda {
namespace {

template <class T>
void prepare_given(const Geometry& g, const AxisVectors& given, Form form, const VectorScratch& v,
                   cudaStream_t stream) {
  axis_vectors::import_vectors<T>(g, static_cast<int>(given.sets), {given.x, given.y},
                                  own_places(form, v), stream);
  if (form == Form::distance) center_vectors<T>(g, v, stream);
}

}  // namespace

// ------------------------------------------------------------------------------------- no bias

std::size_t plain_attention_workspace(const AttentionInputs& in, bool backward) {
  check_shape(in.shape);
  const auto geometry = geometry_of(in.shape, in.dtype, {});
  const Call call = plain_call(in, geometry, backward);
  check_call(call);
  if (choose(call, current_device()).attention == Attention::head)
    return backward ? head::Call(in, geometry).backward_workspace() : 0;
  Arena arena;
  if (backward) BackwardScratch(arena, geometry);
  return arena.used();
}

void plain_attention_forward(const AttentionInputs& in, const AttentionOutputs& outputs,
                             const Launch& launch) {
  check_shape(in.shape);
  auto p = attention_params(in, forward_geometry(in, outputs));
  const Call call = plain_call(in, p.geometry, false);
  check_call(call);
  p.out = outputs.out;
  p.softmax = outputs.softmax;
  const Choice choice = choose(call, current_device());
  if (choice.attention == Attention::head)
    return head::Call(in, p.geometry).forward(p, stream_of(launch));
  dispatch_type(in.dtype, [&](auto type) {
    attend<decltype(type)>(choice, in, p, BiasForm::none, stream_of(launch));
  });
}

void plain_attention_backward(const AttentionInputs& in, const AttentionSaved& saved,
                              const AttentionGradients& d, const Launch& launch) {
  check_shape(in.shape);
  const auto geometry = backward_geometry(in, saved, d);
  const Call call = plain_call(in, geometry, true);
  check_call(call);
  auto p = backward_params(attention_params(in, geometry), saved, d);
  const Choice choice = choose(call, current_device());
  if (choice.attention == Attention::head)
    return head::Call(in, geometry).backward(p, {}, {}, launch);
  Arena arena(launch.workspace, launch.workspace_bytes);
  p.delta = BackwardScratch(arena, geometry).delta;
  dispatch_type(in.dtype, [&](auto type) {
    attend_backward<decltype(type)>(choice, in, p, BiasForm::none, stream_of(launch));
  });
}

// --------------------------------------------------------- stage 2, from given axis vectors

std::size_t axis_bias_attention_workspace(const AttentionInputs& in, const AxisVectors& vectors,
                                          Form form, bool backward) {
  check_sets(vectors.sets);
  check_shape(in.shape);
  const auto geometry = geometry_of(in.shape, in.dtype, {});
  const Call call = axis_bias_call(in, geometry, vectors, form, backward);
  check_call(call);
  if (choose(call, current_device()).attention == Attention::head)
    return backward ? head::Call(in, geometry, vectors, bias_form(form, vectors.sets))
                          .backward_workspace()
                    : 0;
  Arena arena;
  VectorScratch(arena, geometry, in.dtype, form, static_cast<int>(vectors.sets), backward);
  if (backward) BackwardScratch(arena, geometry);
  return arena.used();
}

void axis_bias_attention_forward(const AttentionInputs& in, const AxisVectors& vectors, Form form,
                                 const Bias& bias, const AttentionOutputs& outputs,
                                 const Launch& launch) {
  check_sets(vectors.sets);
  check_shape(in.shape);
  const auto geometry = forward_geometry(in, outputs);
  const Call call = axis_bias_call(in, geometry, vectors, form, false);
  check_call(call);
  auto p = attention_params(in, geometry, bias);
  p.out = outputs.out;
  p.softmax = outputs.softmax;
  const Choice choice = choose(call, current_device());
  if (choice.attention == Attention::head)
    return head::Call(in, geometry, vectors, bias_form(form, vectors.sets))
        .forward(p, stream_of(launch));
  Arena arena(launch.workspace, launch.workspace_bytes);
  const VectorScratch scratch(arena, geometry, in.dtype, form, static_cast<int>(vectors.sets),
                              false);
  p.vectors = scratch.view();
  const auto stream = stream_of(launch);
  dispatch_type(in.dtype, [&](auto type) {
    using T = decltype(type);
    prepare_given<T>(geometry, vectors, form, scratch, stream);
    attend<T>(choice, in, p, bias_form(form, vectors.sets), stream);
  });
}

void axis_bias_attention_backward(const AttentionInputs& in, const AxisVectors& vectors, Form form,
                                  const Bias& bias, const AttentionSaved& saved,
                                  const AttentionGradients& d,
                                  const AxisVectorGradients& vector_gradients,
                                  const Launch& launch) {
  check_sets(vectors.sets);
  check_shape(in.shape);
  const auto geometry = backward_geometry(in, saved, d);
  const Call call = axis_bias_call(in, geometry, vectors, form, true);
  check_call(call);
  auto p = backward_params(attention_params(in, geometry, bias), saved, d);
  const Choice choice = choose(call, current_device());
  if (choice.attention == Attention::head)
    return head::Call(in, geometry, vectors, bias_form(form, vectors.sets))
        .backward(p, vector_gradients, {.dgain = vector_gradients.dgain}, launch);
  Arena arena(launch.workspace, launch.workspace_bytes);
  const int sets = static_cast<int>(vectors.sets);
  const VectorScratch scratch(arena, geometry, in.dtype, form, sets, true);
  const BackwardScratch backward(arena, geometry);
  p.forward.vectors = scratch.view();
  p.delta = backward.delta;
  p.dx = scratch.gradients[0];
  p.dy = scratch.gradients[1];
  if (vector_gradients.dgain != nullptr) p.dgain = backward.dgain;
  const auto stream = stream_of(launch);
  dispatch_type(in.dtype, [&](auto type) {
    using T = decltype(type);
    prepare_given<T>(geometry, vectors, form, scratch, stream);
    const auto leave = [&](const VectorGradients& made) {
      axis_vectors::export_gradients<T>(geometry, sets, gradient_places(form, scratch, made.fp32),
                                        {vector_gradients.dx, vector_gradients.dy}, stream);
    };
    attend_backward<T>(choice, in, p, bias_form(form, vectors.sets), stream, {leave});
  });
  SumJobs sums{.images = in.shape.images, .heads = geometry.heads};
  sum_dgain(sums, geometry, backward.dgain, vector_gradients.dgain);
  add_partial_sums(sums, stream);
}

}  // namespace sape2::kernels::cuda
