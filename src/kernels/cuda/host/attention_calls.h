#pragma once

#include "sape2/kernels/dispatch.h"

#include "kernels/cuda/attention_sm80/kernels.h"
#include "kernels/cuda/attention_sm90/kernels.h"
#include "kernels/cuda/axis_vectors/center.h"
#include "kernels/cuda/axis_vectors/params.h"
#include "kernels/cuda/common/element.cuh"
#include "kernels/cuda/common/partial_sums.h"
#include "kernels/cuda/host/call.h"
#include "kernels/cuda/host/geometry.h"
#include "kernels/cuda/host/params.h"
#include "kernels/cuda/host/scratch.h"

/// What attention's entry points share: from the caller's structs to the kernels' parameters.
namespace sape2::kernels::cuda {

/// Calls as dispatch sees them.
inline Call plain_call(const AttentionInputs& in, const Geometry& g, bool backward) {
  Call call;
  call.op = Operator::plain;
  call.backward = backward;
  call.shape = in.shape;
  call.dtype = in.dtype;
  call.scale = in.scale;
  call.aligned = g.aligned;
  return call;
}
inline Call axis_bias_call(const AttentionInputs& in, const Geometry& g, const AxisVectors& vectors,
                           Form form, bool backward) {
  Call call = plain_call(in, g, backward);
  call.op = Operator::axis_bias;
  call.form = form;
  call.source = vectors.sets == 2 ? Source::qk : Source::k;
  return call;
}

inline Geometry forward_geometry(const AttentionInputs& in, const AttentionOutputs& out) {
  return geometry_of(in.shape, in.dtype, {in.q, in.k, in.v, as_const(out.out)});
}

inline Geometry backward_geometry(const AttentionInputs& in, const AttentionSaved& saved,
                                  const AttentionGradients& d) {
  return geometry_of(
      in.shape, in.dtype,
      {in.q, in.k, in.v, saved.out, saved.dout, as_const(d.dq), as_const(d.dk), as_const(d.dv)});
}

inline AttentionParams attention_params(const AttentionInputs& in, const Geometry& geometry) {
  AttentionParams p{};
  p.geometry = geometry;
  p.scale = in.scale;
  p.q = in.q;
  p.k = in.k;
  p.v = in.v;
  p.vectors.sets = 1;
  return p;
}

inline AttentionParams attention_params(const AttentionInputs& in, const Geometry& geometry,
                                        const Bias& bias) {
  auto p = attention_params(in, geometry);
  p.gain = bias.gain;
  p.inside = bias.inside;
  return p;
}

inline AttentionBackwardParams backward_params(const AttentionParams& forward,
                                               const AttentionSaved& saved,
                                               const AttentionGradients& d) {
  AttentionBackwardParams p{};
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
void center_vectors(const Geometry& g, const VectorScratch& v, cudaStream_t stream) {
  axis_vectors::center<T>({.geometry = g,
                           .sets = v.own_sets,
                           .from = {static_cast<const float*>(v.gradients[0]),
                                    static_cast<const float*>(v.gradients[1])},
                           .widths = {v.widths[0], v.widths[1]},
                           .centered = {v.vectors[0], v.vectors[1]},
                           .norms = {v.norms[0], v.norms[1]}},
                          stream);
}

/// Where vectors are put at first.
inline axis_vectors::VectorPlaces<void*> own_places(Form form, const VectorScratch& v) {
  const bool direct = form == Form::direct;
  return {.axes = {direct ? v.vectors[0] : v.gradients[0], direct ? v.vectors[1] : v.gradients[1]},
          .widths = {v.widths[0], v.widths[1]},
          .fp32 = !direct,
          .add_sets = direct};
}

/// Where the attention kernels leave the vectors' gradients.
inline axis_vectors::VectorPlaces<const void*> gradient_places(Form form, const VectorScratch& v,
                                                               bool fp32) {
  return {.axes = {v.gradients[0], v.gradients[1]},
          .widths = {v.widths[0], v.widths[1]},
          .fp32 = fp32,
          .add_sets = form == Form::direct};
}

/// Attention in tiles, by the family that was chosen. The sm_90 kernels return false if a tensor
/// cannot be described to TMA, e.g. for the size of its strides.
template <class T>
void attend(const Choice& choice, const AttentionInputs& in, const AttentionParams& p,
            BiasForm form, cudaStream_t stream) {
  if constexpr (std::is_same_v<T, float>) {
    if (in.tf32) return sm80::forward<Tf32>(p, form, stream);
  } else {
    if (choice.attention == Attention::sm90 && sm90::forward<T>(p, form, stream)) return;
  }
  sm80::forward<T>(p, form, stream);
}

template <class T>
void attend_backward(const Choice& choice, const AttentionInputs& in,
                     const AttentionBackwardParams& p, BiasForm form, cudaStream_t stream,
                     const BackwardContinuation& continuation = {}) {
  if constexpr (std::is_same_v<T, float>) {
    if (in.tf32) return sm80::backward<Tf32>(p, form, stream, continuation);
  } else {
    if (choice.attention == Attention::sm90 && sm90::backward<T>(p, form, stream, continuation))
      return;
  }
  sm80::backward<T>(p, form, stream, continuation);
}

inline void sum_dgain(SumJobs& sums, const Geometry& g, const float* partials, float* dgain) {
  SumJob job;
  job.parts[0] = {partials, g.padded_tokens / 64, 1, 0};
  job.out = dgain;
  sums.add(job);
}

}  // namespace sape2::kernels::cuda
