// The operators' schemas. Public ones are differentiable everywhere; those with a leading
// underscore are their device kernels and may change.
#include "ops/operators/public_ops.h"

#include <torch/library.h>

namespace sape2::ops {

TORCH_LIBRARY(sape2, m) {
  // softmax(scale · q kᵀ) v for q, k, v [B, h, N, d]; scale: 1/√d.
  m.def("attention(Tensor q, Tensor k, Tensor v, *, float? scale=None) -> Tensor",
        &public_ops::attention);

  // SaPE² attention over rows·cols patches behind `prefix` tokens. Tables ex, ey: [M, d] or [h, M,
  // d], for mode "qk" with a leading axis of 2 (Q's, then K's). span: "suffix" | "between"; form:
  // "distance" | "direct" | "paths" (not fused). gate_scale, gate_offset, gain: 0-dim or [h]; None:
  // 1/√d, 0, 1. gate_scale 0 with gate_offset +inf: open gates.
  m.def(
      "sape2_attention(Tensor q, Tensor k, Tensor v, Tensor ex, Tensor ey, int rows, int cols, *, "
      "int prefix=0, str mode=\"k\", str span=\"suffix\", str form=\"distance\", float? "
      "scale=None, "
      "Tensor? gate_scale=None, Tensor? gate_offset=None, Tensor? gain=None, "
      "bool bias_inside=True) -> Tensor",
      &public_ops::sape2_attention);

  // The same for calls from Python, where each name of an argument costs time, and for layers that
  // learn gates: they take gate_scale / gate_divisor.
  m.def(
      "_sape2_attention(Tensor q, Tensor k, Tensor v, Tensor ex, Tensor ey, int rows, int cols, "
      "int prefix, str mode, str span, str form, float? scale, Tensor? gate_scale, float "
      "gate_divisor, Tensor? gate_offset, Tensor? gain, bool bias_inside) -> Tensor",
      &public_ops::sape2_attention_in_order);

  // The same of a projection's output: the thirds of qkv [B, N, 3·heads·d] are q, k and v, and the
  // result is [B, N, heads·d].
  m.def(
      "_packed_sape2_attention(Tensor qkv, int heads, Tensor ex, Tensor ey, int rows, int cols, "
      "int prefix, str mode, str span, str form, float? scale, Tensor? gate_scale, float "
      "gate_divisor, Tensor? gate_offset, Tensor? gain, bool bias_inside) -> Tensor",
      &public_ops::packed_sape2_attention);

  // Stage 1: the axis vectors [B, h, rows·cols, cols] and [B, h, rows·cols, rows]; mode "qk": a
  // leading axis of 2.
  m.def(
      "sape2_vectors(Tensor q, Tensor k, Tensor ex, Tensor ey, int rows, int cols, *, int "
      "prefix=0, "
      "str mode=\"k\", str span=\"suffix\", Tensor? gate_scale=None, Tensor? gate_offset=None) -> "
      "(Tensor ux, Tensor uy)",
      &public_ops::sape2_vectors);

  // Stage 2, bias ‖ux_i − ux_n‖ + ‖uy_i − uy_n‖; the vectors may have a leading axis of 2.
  m.def(
      "distance_attention(Tensor q, Tensor k, Tensor v, Tensor ux, Tensor uy, int rows, int cols, "
      "*, "
      "int prefix=0, float? scale=None, Tensor? gain=None, bool bias_inside=True) -> Tensor",
      &public_ops::distance_attention);

  // Stage 2, bias zx_i[x_n] + zy_i[y_n] (decomposed relative position) for any vectors.
  m.def(
      "axial_attention(Tensor q, Tensor k, Tensor v, Tensor zx, Tensor zy, int rows, int cols, *, "
      "int prefix=0, float? scale=None, Tensor? gain=None, bool bias_inside=False) -> Tensor",
      &public_ops::axial_attention);

  // The bias before the gain, stored in full: [B, h, N, N].
  m.def(
      "sape2_bias(Tensor q, Tensor k, Tensor ex, Tensor ey, int rows, int cols, *, int prefix=0, "
      "str mode=\"k\", str span=\"suffix\", Tensor? gate_scale=None, Tensor? gate_offset=None, "
      "str form=\"distance\") -> Tensor",
      &public_ops::sape2_bias);

  // CoPE over the raster order of all tokens; e: [M, d]. scale (1/√d) acts on gates and on q·k.
  m.def("cope_attention(Tensor q, Tensor k, Tensor v, Tensor e, *, float? scale=None) -> Tensor",
        &public_ops::cope_attention);

  // Rotary position of x [B, h, N, d]; prefix tokens are left as they are.
  m.def("rope(Tensor x, *, int prefix=0) -> Tensor", &public_ops::rope);
  m.def("rope2d(Tensor x, int rows, int cols, *, int prefix=0) -> Tensor", &public_ops::rope2d);
  m.def(
      "rope2d_mixed(Tensor x, Tensor fx, Tensor fy, int rows, int cols, *, int prefix=0) -> Tensor",
      &public_ops::rope2d_mixed);

  // Which CUDA kernels a call takes, and why not faster ones, as text; needs no GPU unless device
  // is "cuda". span: None is the one that belongs to the form; positions: 0 is as many rows of a
  // table as no position leaves.
  m.def(
      "kernel_for(str op, int images, int heads, int rows, int cols, int head_size, *, int "
      "prefix=0, str dtype=\"bfloat16\", str form=\"direct\", str mode=\"k\", str? span=None, "
      "int positions=0, bool backward=False, str device=\"sm_90\") -> str",
      &public_ops::kernel_for);

  // Forward kernels return all outputs. Backward kernels return the gradients of the wanted tensors
  // (bit i of `wanted`: the i-th tensor of the arguments), in order; see BackwardInputs. `kept`:
  // how many bytes a head forward keeps for backward in `vectors`, [B, h, kept].
  const auto define = [&](const std::string& name, const std::string& arguments,
                          const std::string& outputs) {
    m.def((name + "_forward(" + arguments + ") -> " + outputs).c_str());
    m.def((name + "_backward(Tensor[] grads, Tensor[] outputs, int wanted, " + arguments +
           ") -> Tensor[]")
              .c_str());
  };
  define("_attention",
         "Tensor q, Tensor k, Tensor v, Tensor? ux, Tensor? uy, int rows, int cols, int prefix, "
         "str form, float scale, Tensor? gain, bool bias_inside",
         "(Tensor out, Tensor softmax)");
  define("_sape2_attention",
         "Tensor q, Tensor k, Tensor v, Tensor ex, Tensor ey, int rows, int cols, int prefix, "
         "str mode, str span, str form, float scale, Tensor? gate_scale, Tensor? gate_offset, "
         "Tensor? gain, bool bias_inside, int kept",
         "(Tensor out, Tensor softmax, Tensor vectors)");
  define("_packed_sape2_attention",
         "Tensor qkv, int heads, Tensor ex, Tensor ey, int rows, int cols, int prefix, str mode, "
         "str span, str form, float scale, Tensor? gate_scale, float gate_divisor, Tensor? "
         "gate_offset, Tensor? gain, bool bias_inside, int kept",
         "(Tensor out, Tensor softmax, Tensor vectors)");
  define("_cope_attention", "Tensor q, Tensor k, Tensor v, Tensor e, float scale",
         "(Tensor out, Tensor softmax)");
  define("_sape2_vectors",
         "Tensor q, Tensor k, Tensor ex, Tensor ey, int rows, int cols, int prefix, str mode, "
         "str span, Tensor? gate_scale, Tensor? gate_offset",
         "(Tensor ux, Tensor uy)");
  define("_bias", "Tensor ux, Tensor uy, int rows, int cols, int prefix, str form", "Tensor");
}

// The public operators run their own autograd function; below it, the internal ones are opaque to
// autograd. Without this, LibTorch 1 finds no kernel for Meta tensors that require gradients.
TORCH_LIBRARY_IMPL(sape2, Autograd, m) {
  for (const std::string name : {"_attention", "_sape2_attention", "_packed_sape2_attention",
                                 "_cope_attention", "_sape2_vectors", "_bias"})
    for (const std::string pass : {"_forward", "_backward"})
      m.impl((name + pass).c_str(), torch::CppFunction::makeFallthrough());
}

}  // namespace sape2::ops
