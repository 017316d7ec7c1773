#pragma once

#include "ops/arguments.h"
#include "ops/compat.h"

#include <torch/library.h>

#include <tuple>

/// The internal operators `sape2::_*`, which the public ones are made of. Each has one kernel per
/// device and one for Meta tensors, so that tracing and compilation see it whole. This page is the
/// only place where gathered arguments meet the flat lists of the schemas.
namespace sape2::ops {

using at::Tensor;
using at::TensorList;
using Tensors = std::vector<Tensor>;
using TwoTensors = std::tuple<Tensor, Tensor>;
using ThreeTensors = std::tuple<Tensor, Tensor, Tensor>;

inline std::string name_of(Form form) {
  return form == Form::none ? "none" : form == Form::distance ? "distance" : "direct";
}

inline Form form_of(const std::string& name) {
  return name == "none" ? Form::none : name == "distance" ? Form::distance : Form::direct;
}

/// The arguments of a backward kernel besides those of its forward kernel.
struct BackwardInputs {
  TensorList grads;    ///< of the differentiable outputs
  TensorList outputs;  ///< all: out, softmax and perhaps kept vectors; ux and uy; or the bias
  int64_t wanted;      ///< bit i: the gradient of the i-th of `tensors()` is asked for

  /// A bit of `wanted`: dq, dk and dv may be parts of one new tensor. Compiled graphs must be able
  /// to take each result for a tensor of its own.
  static constexpr int64_t kMayShare = int64_t{1} << 62;

  bool wants(size_t index) const { return (wanted >> index) & 1; }
  bool may_share() const { return (wanted & kMayShare) != 0; }
};

/// The kernels of one back end in the form their schemas ask for. A back end has `forward(a)`,
/// which returns all outputs, and `backward(inputs, a)`, which returns the wanted gradients in
/// order, for each kind of arguments.
template <class Backend>
struct Kernels {
  static TwoTensors pair(Tensors outputs) { return {outputs.at(0), outputs.at(1)}; }
  static ThreeTensors three(Tensors outputs) {
    return {outputs.at(0), outputs.at(1), outputs.at(2)};
  }

  static TwoTensors attention_forward(const Tensor& q, const Tensor& k, const Tensor& v,
                                      const OptionalTensor& ux, const OptionalTensor& uy,
                                      int64_t rows, int64_t cols, int64_t prefix, std::string form,
                                      double scale, const OptionalTensor& gain, bool inside) {
    return pair(Backend::forward(BiasedArguments{q, k, v, or_undefined(ux), or_undefined(uy),
                                                 Grid{rows, cols, prefix}, form_of(form), scale,
                                                 or_undefined(gain), inside}));
  }
  static Tensors attention_backward(TensorList grads, TensorList outputs, int64_t wanted,
                                    const Tensor& q, const Tensor& k, const Tensor& v,
                                    const OptionalTensor& ux, const OptionalTensor& uy,
                                    int64_t rows, int64_t cols, int64_t prefix, std::string form,
                                    double scale, const OptionalTensor& gain, bool inside) {
    return Backend::backward(
        {grads, outputs, wanted},
        BiasedArguments{q, k, v, or_undefined(ux), or_undefined(uy), Grid{rows, cols, prefix},
                        form_of(form), scale, or_undefined(gain), inside});
  }

  static Sape2Arguments gather(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& ex,
                               const Tensor& ey, const Grid& grid, const std::string& mode,
                               const std::string& span, const std::string& form, double scale,
                               const OptionalTensor& gate_scale, const OptionalTensor& gate_offset,
                               const OptionalTensor& gain, bool inside, int64_t kept) {
    return {VectorArguments{q, k, ex, ey, grid, mode, span, or_undefined(gate_scale),
                            or_undefined(gate_offset)},
            v,
            form_of(form),
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
    return three(Backend::forward(gather(q, k, v, ex, ey, {rows, cols, prefix}, mode, span, form,
                                         scale, gate_scale, gate_offset, gain, inside, kept)));
  }
  static Tensors sape2_backward(TensorList grads, TensorList outputs, int64_t wanted,
                                const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& ex,
                                const Tensor& ey, int64_t rows, int64_t cols, int64_t prefix,
                                std::string mode, std::string span, std::string form, double scale,
                                const OptionalTensor& gate_scale, const OptionalTensor& gate_offset,
                                const OptionalTensor& gain, bool inside, int64_t kept) {
    return Backend::backward({grads, outputs, wanted},
                             gather(q, k, v, ex, ey, {rows, cols, prefix}, mode, span, form, scale,
                                    gate_scale, gate_offset, gain, inside, kept));
  }

  static TwoTensors cope_forward(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& e,
                                 double scale) {
    return pair(Backend::forward(CopeArguments{q, k, v, e, scale}));
  }
  static Tensors cope_backward(TensorList grads, TensorList outputs, int64_t wanted,
                               const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& e,
                               double scale) {
    return Backend::backward({grads, outputs, wanted}, CopeArguments{q, k, v, e, scale});
  }

  static TwoTensors vectors_forward(const Tensor& q, const Tensor& k, const Tensor& ex,
                                    const Tensor& ey, int64_t rows, int64_t cols, int64_t prefix,
                                    std::string mode, std::string span,
                                    const OptionalTensor& gate_scale,
                                    const OptionalTensor& gate_offset) {
    return pair(
        Backend::forward(VectorArguments{q, k, ex, ey, Grid{rows, cols, prefix}, mode, span,
                                         or_undefined(gate_scale), or_undefined(gate_offset)}));
  }
  static Tensors vectors_backward(TensorList grads, TensorList outputs, int64_t wanted,
                                  const Tensor& q, const Tensor& k, const Tensor& ex,
                                  const Tensor& ey, int64_t rows, int64_t cols, int64_t prefix,
                                  std::string mode, std::string span,
                                  const OptionalTensor& gate_scale,
                                  const OptionalTensor& gate_offset) {
    return Backend::backward({grads, outputs, wanted},
                             VectorArguments{q, k, ex, ey, Grid{rows, cols, prefix}, mode, span,
                                             or_undefined(gate_scale), or_undefined(gate_offset)});
  }

  static Tensor bias_forward(const Tensor& ux, const Tensor& uy, int64_t rows, int64_t cols,
                             int64_t prefix, std::string form) {
    return Backend::forward(BiasArguments{ux, uy, Grid{rows, cols, prefix}, form_of(form)}).at(0);
  }
  static Tensors bias_backward(TensorList grads, TensorList outputs, int64_t wanted,
                               const Tensor& ux, const Tensor& uy, int64_t rows, int64_t cols,
                               int64_t prefix, std::string form) {
    return Backend::backward({grads, outputs, wanted},
                             BiasArguments{ux, uy, Grid{rows, cols, prefix}, form_of(form)});
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
  static Tensors forward(const CopeArguments& a);
  static Tensors forward(const VectorArguments& a);
  static Tensors forward(const BiasArguments& a);
  static Tensors backward(const BackwardInputs& in, const BiasedArguments& a);
  static Tensors backward(const BackwardInputs& in, const Sape2Arguments& a);
  static Tensors backward(const BackwardInputs& in, const CopeArguments& a);
  static Tensors backward(const BackwardInputs& in, const VectorArguments& a);
  static Tensors backward(const BackwardInputs& in, const BiasArguments& a);
};

}  // namespace sape2::ops
