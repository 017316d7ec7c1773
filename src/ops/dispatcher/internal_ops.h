#pragma once

#include "sape2/base/error.h"

#include "ops/arguments.h"
#include "ops/checks/internal_checks.h"
#include "ops/dispatcher/compat.h"

#include <torch/library.h>

#include <tuple>

/// The internal operators `sape2::_*`, which the public ones are made of. Each has one kernel per
/// device and one for Meta tensors, so that tracing and compilation see it whole; the packed one
/// has a single kernel, which calls that of three tensors. This page is the only place where
/// gathered arguments meet the flat lists of the schemas.
namespace sape2::ops {

using at::Tensor;
using at::TensorList;
using Tensors = std::vector<Tensor>;
using TwoTensors = std::tuple<Tensor, Tensor>;
using ThreeTensors = std::tuple<Tensor, Tensor, Tensor>;

inline std::string name_of(Form form) {
  return form == Form::none       ? "none"
         : form == Form::distance ? "distance"
         : form == Form::direct   ? "direct"
                                  : "paths";
}

/// The kernels of one back end in the form their schemas ask for. A back end has `forward(a)`,
/// which returns all outputs, and `backward(inputs, a)`, which returns the wanted gradients in
/// order, for each kind of arguments. Anybody may call an internal operator by its name, so every
/// call is checked here, whatever its device, before the back end sees it.
template <class Backend>
struct Kernels {
  /// What `run` gives; what a kernel refuses, with the operator's name.
  template <class Run>
  static Tensors named(const char* op, Run run) {
    try {
      return run();
    } catch (const Error& error) {
      TORCH_CHECK_VALUE(false, op, ": ", error.what());
    }
  }
  template <class Arguments>
  static Tensors forward(const char* op, const Arguments& a) {
    if (!AlreadyChecked<Arguments>::holds(a)) check(op, a);
    return named(op, [&] { return Backend::forward(a); });
  }
  template <class Arguments>
  static Tensors backward(const char* op, const BackwardInputs& in, const Arguments& a) {
    check_backward(op, in, a);
    return named(op, [&] { return Backend::backward(in, a); });
  }

  static TwoTensors pair(Tensors outputs) { return {outputs.at(0), outputs.at(1)}; }
  static ThreeTensors three(Tensors outputs) {
    return {outputs.at(0), outputs.at(1), outputs.at(2)};
  }

  static TwoTensors attention_forward(const Tensor& q, const Tensor& k, const Tensor& v,
                                      const OptionalTensor& ux, const OptionalTensor& uy,
                                      int64_t rows, int64_t cols, int64_t prefix, std::string form,
                                      double scale, const OptionalTensor& gain, bool inside) {
    const char* op = "_attention_forward";
    return pair(forward(
        op, BiasedArguments{q, k, v, or_undefined(ux), or_undefined(uy), Grid{rows, cols, prefix},
                            parse_any_form(op, form), scale, or_undefined(gain), inside}));
  }
  static Tensors attention_backward(TensorList grads, TensorList outputs, int64_t wanted,
                                    const Tensor& q, const Tensor& k, const Tensor& v,
                                    const OptionalTensor& ux, const OptionalTensor& uy,
                                    int64_t rows, int64_t cols, int64_t prefix, std::string form,
                                    double scale, const OptionalTensor& gain, bool inside) {
    const char* op = "_attention_backward";
    return backward(
        op, {grads, outputs, wanted},
        BiasedArguments{q, k, v, or_undefined(ux), or_undefined(uy), Grid{rows, cols, prefix},
                        parse_any_form(op, form), scale, or_undefined(gain), inside});
  }

  static Sape2Arguments gather(const char* op, const Tensor& q, const Tensor& k, const Tensor& v,
                               const Tensor& ex, const Tensor& ey, const Grid& grid,
                               const std::string& mode, const std::string& span,
                               const std::string& form, double scale,
                               const OptionalTensor& gate_scale, const OptionalTensor& gate_offset,
                               const OptionalTensor& gain, bool inside, int64_t kept) {
    return {VectorArguments{q, k, ex, ey, grid, mode, span, or_undefined(gate_scale),
                            or_undefined(gate_offset)},
            v,
            parse_form(op, form),
            scale,
            or_undefined(gain),
            inside,
            kept};
  }
  static ThreeTensors sape2_forward(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const Tensor& ex, const Tensor& ey, int64_t rows, int64_t cols,
                                    int64_t prefix, std::string mode, std::string span,
                                    std::string form, double scale,
                                    const OptionalTensor& gate_scale,
                                    const OptionalTensor& gate_offset, const OptionalTensor& gain,
                                    bool inside, int64_t kept) {
    const char* op = "_sape2_attention_forward";
    return three(forward(op, gather(op, q, k, v, ex, ey, {rows, cols, prefix}, mode, span, form,
                                    scale, gate_scale, gate_offset, gain, inside, kept)));
  }
  static Tensors sape2_backward(TensorList grads, TensorList outputs, int64_t wanted,
                                const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& ex,
                                const Tensor& ey, int64_t rows, int64_t cols, int64_t prefix,
                                std::string mode, std::string span, std::string form, double scale,
                                const OptionalTensor& gate_scale, const OptionalTensor& gate_offset,
                                const OptionalTensor& gain, bool inside, int64_t kept) {
    const char* op = "_sape2_attention_backward";
    return backward(op, {grads, outputs, wanted},
                    gather(op, q, k, v, ex, ey, {rows, cols, prefix}, mode, span, form, scale,
                           gate_scale, gate_offset, gain, inside, kept));
  }

  static PackedArguments gather_packed(const char* op, const Tensor& qkv, int64_t heads,
                                       const Tensor& ex, const Tensor& ey, const Grid& grid,
                                       const std::string& mode, const std::string& span,
                                       const std::string& form, double scale,
                                       const OptionalTensor& gate_scale, double gate_divisor,
                                       const OptionalTensor& gate_offset,
                                       const OptionalTensor& gain, bool inside, int64_t kept) {
    PackedArguments a{qkv, heads,
                      gather(op, {}, {}, {}, ex, ey, grid, mode, span, form, scale, gate_scale,
                             gate_offset, gain, inside, kept)};
    a.split.gate_divisor = gate_divisor;
    return a;
  }
  static ThreeTensors packed_forward(const Tensor& qkv, int64_t heads, const Tensor& ex,
                                     const Tensor& ey, int64_t rows, int64_t cols, int64_t prefix,
                                     std::string mode, std::string span, std::string form,
                                     double scale, const OptionalTensor& gate_scale,
                                     double gate_divisor, const OptionalTensor& gate_offset,
                                     const OptionalTensor& gain, bool inside, int64_t kept) {
    const char* op = "_packed_sape2_attention_forward";
    return three(forward(
        op, gather_packed(op, qkv, heads, ex, ey, {rows, cols, prefix}, mode, span, form, scale,
                          gate_scale, gate_divisor, gate_offset, gain, inside, kept)));
  }
  static Tensors packed_backward(TensorList grads, TensorList outputs, int64_t wanted,
                                 const Tensor& qkv, int64_t heads, const Tensor& ex,
                                 const Tensor& ey, int64_t rows, int64_t cols, int64_t prefix,
                                 std::string mode, std::string span, std::string form, double scale,
                                 const OptionalTensor& gate_scale, double gate_divisor,
                                 const OptionalTensor& gate_offset, const OptionalTensor& gain,
                                 bool inside, int64_t kept) {
    const char* op = "_packed_sape2_attention_backward";
    return backward(
        op, {grads, outputs, wanted},
        gather_packed(op, qkv, heads, ex, ey, {rows, cols, prefix}, mode, span, form, scale,
                      gate_scale, gate_divisor, gate_offset, gain, inside, kept));
  }

  static TwoTensors cope_forward(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& e,
                                 double scale) {
    return pair(forward("_cope_attention_forward", CopeArguments{q, k, v, e, scale}));
  }
  static Tensors cope_backward(TensorList grads, TensorList outputs, int64_t wanted,
                               const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& e,
                               double scale) {
    return backward("_cope_attention_backward", {grads, outputs, wanted},
                    CopeArguments{q, k, v, e, scale});
  }

  static TwoTensors vectors_forward(const Tensor& q, const Tensor& k, const Tensor& ex,
                                    const Tensor& ey, int64_t rows, int64_t cols, int64_t prefix,
                                    std::string mode, std::string span,
                                    const OptionalTensor& gate_scale,
                                    const OptionalTensor& gate_offset) {
    return pair(forward("_sape2_vectors_forward",
                        VectorArguments{q, k, ex, ey, Grid{rows, cols, prefix}, mode, span,
                                        or_undefined(gate_scale), or_undefined(gate_offset)}));
  }
  static Tensors vectors_backward(TensorList grads, TensorList outputs, int64_t wanted,
                                  const Tensor& q, const Tensor& k, const Tensor& ex,
                                  const Tensor& ey, int64_t rows, int64_t cols, int64_t prefix,
                                  std::string mode, std::string span,
                                  const OptionalTensor& gate_scale,
                                  const OptionalTensor& gate_offset) {
    return backward("_sape2_vectors_backward", {grads, outputs, wanted},
                    VectorArguments{q, k, ex, ey, Grid{rows, cols, prefix}, mode, span,
                                    or_undefined(gate_scale), or_undefined(gate_offset)});
  }

  static Tensor bias_forward(const Tensor& ux, const Tensor& uy, int64_t rows, int64_t cols,
                             int64_t prefix, std::string form) {
    const char* op = "_bias_forward";
    return forward(op, BiasArguments{ux, uy, Grid{rows, cols, prefix}, parse_form(op, form)}).at(0);
  }
  static Tensors bias_backward(TensorList grads, TensorList outputs, int64_t wanted,
                               const Tensor& ux, const Tensor& uy, int64_t rows, int64_t cols,
                               int64_t prefix, std::string form) {
    const char* op = "_bias_backward";
    return backward(op, {grads, outputs, wanted},
                    BiasArguments{ux, uy, Grid{rows, cols, prefix}, parse_form(op, form)});
  }

  static void implement_backward(torch::Library& m) {
    m.impl("_attention_backward", &attention_backward);
    m.impl("_sape2_attention_backward", &sape2_backward);
    m.impl("_cope_attention_backward", &cope_backward);
    m.impl("_sape2_vectors_backward", &vectors_backward);
    m.impl("_bias_backward", &bias_backward);
  }
  static void implement(torch::Library& m) {
    m.impl("_attention_forward", &attention_forward);
    m.impl("_sape2_attention_forward", &sape2_forward);
    m.impl("_cope_attention_forward", &cope_forward);
    m.impl("_sape2_vectors_forward", &vectors_forward);
    m.impl("_bias_forward", &bias_forward);
    implement_backward(m);
  }
};

/// The dispatcher itself as a back end: calls the kernel of the tensors' device.
struct Dispatched {
  static Tensors forward(const BiasedArguments& a);
  static Tensors forward(const Sape2Arguments& a);
  static Tensors forward(const PackedArguments& a);
  static Tensors forward(const CopeArguments& a);
  static Tensors forward(const VectorArguments& a);
  static Tensors forward(const BiasArguments& a);
  static Tensors backward(const BackwardInputs& in, const BiasedArguments& a);
  static Tensors backward(const BackwardInputs& in, const Sape2Arguments& a);
  static Tensors backward(const BackwardInputs& in, const PackedArguments& a);
  static Tensors backward(const BackwardInputs& in, const CopeArguments& a);
  static Tensors backward(const BackwardInputs& in, const VectorArguments& a);
  static Tensors backward(const BackwardInputs& in, const BiasArguments& a);
};

}  // namespace sape2::ops
