// Entry points of attention: plain, with a bias from given vectors, and with both stages.
#include "kernels/cuda/attention.h"
#include "kernels/cuda/buffers.h"
#include "kernels/cuda/exchange.h"
#include "kernels/cuda/head_calls.h"
#include "kernels/cuda/near_vectors.h"
#include "kernels/cuda/stage_one_sums.h"

namespace sape2::kernels::cuda {
namespace {

BiasForm bias_form(Form form, std::int64_t sets) {
  if (form == Form::direct) return BiasForm::direct;
  return sets == 1 ? BiasForm::distance : BiasForm::distance_pair;
}

Geometry forward_geometry(const AttentionInputs& in, const AttentionOutputs& out) {
  return geometry_of(in.shape, in.dtype, {in.q, in.k, in.v, as_const(out.out)});
}

Geometry backward_geometry(const AttentionInputs& in, const AttentionSaved& saved,
                           const AttentionGradients& d) {
  return geometry_of(
      in.shape, in.dtype,
      {in.q, in.k, in.v, saved.out, saved.dout, as_const(d.dq), as_const(d.dk), as_const(d.dv)});
}

AttentionParams attention_params(const AttentionInputs& in, const Geometry& geometry) {
  AttentionParams p{};
  p.geometry = geometry;
  p.scale = in.scale;
  p.q = in.q;
  p.k = in.k;
  p.v = in.v;
  p.vectors.sets = 1;
  return p;
}

AttentionParams attention_params(const AttentionInputs& in, const Geometry& geometry,
                                 const Bias& bias) {
  auto p = attention_params(in, geometry);
  p.gain = bias.gain;
  p.inside = bias.inside;
  return p;
}

BackwardParams backward_params(const AttentionParams& forward, const AttentionSaved& saved,
                               const AttentionGradients& d) {
  BackwardParams p{};
  p.forward = forward;
  p.forward.softmax = const_cast<SoftmaxRow*>(saved.softmax);  // only read
  p.out = saved.out;
  p.dout = saved.dout;
  p.dq = d.dq;
  p.dk = d.dk;
  p.dv = d.dv;
  return p;
}

/// The distance form's last preparation.
template <class T>
void make_near(const Geometry& g, const VectorScratch& v, cudaStream_t stream) {
  near_vectors<T>({.geometry = g,
                   .sets = v.own_sets,
                   .from = {static_cast<const float*>(v.gradients[0]),
                            static_cast<const float*>(v.gradients[1])},
                   .widths = {v.widths[0], v.widths[1]},
                   .near = {v.vectors[0], v.vectors[1]},
                   .norms = {v.norms[0], v.norms[1]}},
                  stream);
}

/// Where vectors are put at first.
VectorPlaces<void*> own_places(Form form, const VectorScratch& v) {
  const bool direct = form == Form::direct;
  return {.axes = {direct ? v.vectors[0] : v.gradients[0], direct ? v.vectors[1] : v.gradients[1]},
          .widths = {v.widths[0], v.widths[1]},
          .wide = !direct,
          .add_sets = direct};
}

/// Where the attention kernels leave the vectors' gradients.
VectorPlaces<const void*> gradient_places(Form form, const VectorScratch& v) {
  return {.axes = {v.gradients[0], v.gradients[1]},
          .widths = {v.widths[0], v.widths[1]},
          .wide = form == Form::distance,
          .add_sets = form == Form::direct};
}

template <class T>
void prepare_given(const Geometry& g, const AxisVectors& given, Form form, const VectorScratch& v,
                   cudaStream_t stream) {
  import_vectors<T>(g, static_cast<int>(given.sets), {given.x, given.y}, own_places(form, v),
                    stream);
  if (form == Form::distance) make_near<T>(g, v, stream);
}

template <class T>
void prepare_sape2(const StageOneParams& stage, Form form, const VectorScratch& v,
                   cudaStream_t stream) {
  stage_one_forward<T>({.stage = stage, .vectors = own_places(form, v)}, stream);
  if (form == Form::distance) make_near<T>(stage.geometry, v, stream);
}

template <class T>
void attend(const AttentionInputs& in, const AttentionParams& p, BiasForm form,
            cudaStream_t stream) {
  if constexpr (std::is_same_v<T, float>)
    if (in.tf32) return attention_forward<Tf32>(p, form, stream);
  attention_forward<T>(p, form, stream);
}

template <class T>
void attend_backward(const AttentionInputs& in, const BackwardParams& p, BiasForm form,
                     cudaStream_t stream) {
  if constexpr (std::is_same_v<T, float>)
    if (in.tf32) return attention_backward<Tf32>(p, form, stream);
  attention_backward<T>(p, form, stream);
}

void sum_dgain(SumJobs& sums, const Geometry& g, const float* partials, float* dgain) {
  SumJob job;
  job.parts[0] = {partials, g.padded_tokens / 64, 1, 0};
  job.out = dgain;
  sums.add(job);
}

}  // namespace

// ------------------------------------------------------------------------------------- no bias

std::size_t plain_attention_workspace(const AttentionInputs& in, bool backward) {
  check_shape(in.shape, in.dtype);
  const auto geometry = geometry_of(in.shape, in.dtype, {});
  const HeadCall head(in, geometry);
  if (head.fits()) return backward ? head.backward_workspace() : 0;
  Arena arena;
  if (backward) BackwardScratch(arena, geometry);
  return arena.used();
}

void plain_attention_forward(const AttentionInputs& in, const AttentionOutputs& outputs,
                             const Launch& launch) {
  check_shape(in.shape, in.dtype);
  auto p = attention_params(in, forward_geometry(in, outputs));
  p.out = outputs.out;
  p.softmax = outputs.softmax;
  const HeadCall head(in, p.geometry);
  if (head.fits()) return head.forward(p, stream_of(launch));
  dispatch_type(in.dtype, [&](auto type) {
    attend<decltype(type)>(in, p, BiasForm::none, stream_of(launch));
  });
}

void plain_attention_backward(const AttentionInputs& in, const AttentionSaved& saved,
                              const AttentionGradients& d, const Launch& launch) {
  check_shape(in.shape, in.dtype);
  const auto geometry = backward_geometry(in, saved, d);
  auto p = backward_params(attention_params(in, geometry), saved, d);
  const HeadCall head(in, geometry);
  if (head.fits()) return head.backward(p, {}, {}, launch);
  Arena arena(launch.workspace, launch.workspace_bytes);
  p.delta = BackwardScratch(arena, geometry).delta;
  dispatch_type(in.dtype, [&](auto type) {
    attend_backward<decltype(type)>(in, p, BiasForm::none, stream_of(launch));
  });
}

// --------------------------------------------------------- stage 2, from given axis vectors

std::size_t biased_attention_workspace(const AttentionInputs& in, const AxisVectors& vectors,
                                       Form form, bool backward) {
  check_shape(in.shape, in.dtype, form, vectors.sets);
  const auto geometry = geometry_of(in.shape, in.dtype, {});
  const HeadCall head(in, geometry, vectors, bias_form(form, vectors.sets));
  if (head.fits()) return backward ? head.backward_workspace() : 0;
  Arena arena;
  VectorScratch(arena, geometry, in.dtype, form, static_cast<int>(vectors.sets), backward);
  if (backward) BackwardScratch(arena, geometry);
  return arena.used();
}

void biased_attention_forward(const AttentionInputs& in, const AxisVectors& vectors, Form form,
                              const Bias& bias, const AttentionOutputs& outputs,
                              const Launch& launch) {
  check_shape(in.shape, in.dtype, form, vectors.sets);
  const auto geometry = forward_geometry(in, outputs);
  auto p = attention_params(in, geometry, bias);
  p.out = outputs.out;
  p.softmax = outputs.softmax;
  const HeadCall head(in, geometry, vectors, bias_form(form, vectors.sets));
  if (head.fits()) return head.forward(p, stream_of(launch));
  Arena arena(launch.workspace, launch.workspace_bytes);
  const VectorScratch scratch(arena, geometry, in.dtype, form, static_cast<int>(vectors.sets),
                              false);
  p.vectors = scratch.view();
  const auto stream = stream_of(launch);
  dispatch_type(in.dtype, [&](auto type) {
    using T = decltype(type);
    prepare_given<T>(geometry, vectors, form, scratch, stream);
    attend<T>(in, p, bias_form(form, vectors.sets), stream);
  });
}

void biased_attention_backward(const AttentionInputs& in, const AxisVectors& vectors, Form form,
                               const Bias& bias, const AttentionSaved& saved,
                               const AttentionGradients& d,
                               const AxisVectorGradients& vector_gradients, const Launch& launch) {
  check_shape(in.shape, in.dtype, form, vectors.sets);
  const auto geometry = backward_geometry(in, saved, d);
  auto p = backward_params(attention_params(in, geometry, bias), saved, d);
  const HeadCall head(in, geometry, vectors, bias_form(form, vectors.sets));
  if (head.fits())
    return head.backward(p, vector_gradients, {.dgain = vector_gradients.dgain}, launch);
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
    attend_backward<T>(in, p, bias_form(form, vectors.sets), stream);
    export_gradients<T>(geometry, sets, gradient_places(form, scratch),
                        {vector_gradients.dx, vector_gradients.dy}, stream);
  });
  SumJobs sums{.images = in.shape.images, .heads = geometry.heads};
  sum_dgain(sums, geometry, backward.dgain, vector_gradients.dgain);
  add_partial_sums(sums, stream);
}

// ---------------------------------------------------------------------------------- both stages

std::size_t sape2_attention_workspace(const AttentionInputs& in, const Encoding& encoding,
                                      Form form, bool backward) {
  check_shape(in.shape, in.dtype, form, sets_of(encoding));
  check_encoding(encoding);
  const auto geometry = geometry_of(in.shape, in.dtype, {});
  const HeadCall head(in, geometry, encoding, bias_form(form, sets_of(encoding)));
  if (head.fits()) return backward ? head.backward_workspace() : 0;
  Arena arena;
  if (backward) BackwardScratch(arena, geometry);
  const VectorScratch vectors(arena, geometry, in.dtype, form, sets_of(encoding), backward);
  if (backward) {
    arena.return_to(vectors.begin);
    StageOneScratch(arena, stage_one_params(geometry, in.q, in.k, encoding));
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
  const HeadCall head(in, geometry, encoding, bias_form(form, sets_of(encoding)));
  if (head.fits()) return head.forward(p, stream_of(launch));
  Arena arena(launch.workspace, launch.workspace_bytes);
  const VectorScratch scratch(arena, geometry, in.dtype, form, sets_of(encoding), false);
  p.vectors = scratch.view();
  const auto stage = stage_one_params(geometry, in.q, in.k, encoding);
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
  const HeadCall head(in, geometry, encoding, bias_form(form, sets_of(encoding)));
  if (head.fits())
    return head.backward(p, {}, {.encoding = encoding_gradients, .dgain = dgain}, launch);
  Arena arena(launch.workspace, launch.workspace_bytes);
  const BackwardScratch backward(arena, geometry);
  const VectorScratch vectors(arena, geometry, in.dtype, form, sets_of(encoding), true);
  const auto stage = stage_one_params(geometry, in.q, in.k, encoding);
  arena.return_to(vectors.begin);
  const StageOneScratch partial(arena, stage);

  p.forward.vectors = vectors.view();
  p.delta = backward.delta;
  p.dx = vectors.gradients[0];
  p.dy = vectors.gradients[1];
  if (dgain != nullptr) p.dgain = backward.dgain;
  const auto back = stage_one_backward_params(stage, gradient_places(form, vectors), d.dq, d.dk,
                                              encoding_gradients, partial);
  const auto stream = stream_of(launch);
  dispatch_type(in.dtype, [&](auto type) {
    using T = decltype(type);
    prepare_sape2<T>(stage, form, vectors, stream);
    attend_backward<T>(in, p, bias_form(form, stage.sets), stream);
    stage_one_backward<T>(back, stream);
  });
  SumJobs sums{.images = in.shape.images, .heads = geometry.heads};
  sum_dgain(sums, geometry, backward.dgain, dgain);
  sum_stage_one(sums, stage, encoding, encoding_gradients, partial);
  add_partial_sums(sums, stream);
}

}  // namespace sape2::kernels::cuda
