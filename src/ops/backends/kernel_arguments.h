#pragma once

#include "sape2/kernels/attention.h"

#include "ops/arguments.h"

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

/// The operators' arguments as the fused kernels of every device take them. What is called `Held…`
/// has the kernels' pointers in `params`, and the tensors that keep their memory alive beside them.
namespace sape2::ops {

struct HeldInputs {
  HeldInputs(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Grid& grid,
             double scale, bool tf32 = false);
  at::Tensor q, k, v;
  kernels::AttentionInputs params;
};

struct HeldOutputs {
  /// `softmax`: (B, h, N, 2) floats.
  HeldOutputs(const at::Tensor& q, const at::Tensor& softmax);
  at::Tensor out, softmax;
  kernels::AttentionOutputs params;
};

/// What a backward kernel reads besides the inputs.
struct HeldSaved {
  explicit HeldSaved(const BackwardInputs& in);
  at::Tensor out, softmax, dout;
  kernels::AttentionSaved params;
};

/// Axis vectors given by the caller, in the type of q.
struct HeldVectors {
  explicit HeldVectors(const BiasedArguments& a);
  at::Tensor ux, uy;
  kernels::AxisVectors params;
};

/// Gates and tables of stage 1, as float32; gates that are undefined are left to the kernels.
struct HeldEncoding {
  HeldEncoding(const VectorArguments& a, const at::Tensor& gate_scale,
               const at::Tensor& gate_offset);
  at::Tensor ex, ey, gate_scale, gate_offset;
  kernels::Encoding params;
};

kernels::Form kernel_form(Form form);

/// What of stage 1 is known without its tensors' numbers.
kernels::Encoding encoding_of(const VectorArguments& a);

/// Tokens without a grid are one row.
Grid in_one_row(const at::Tensor& q);
Grid grid_of(const BiasedArguments& a);

/// A new tensor on the device of another.
using EmptyBeside = at::Tensor (*)(const at::Tensor& other, at::IntArrayRef sizes,
                                   at::ScalarType type);

/// The gradients a backward pass makes, which kernels write into; `list` has the wanted ones, in
/// the order of the arguments' tensors.
class Gradients {
 public:
  Gradients(const BackwardInputs& in, EmptyBeside empty) : in_(in), empty_(empty) {}

  bool wants(std::size_t index) const { return in_.wants(index); }
  bool may_share() const { return in_.may_share(); }

  /// For the `index`-th tensor of the arguments, like it; undefined if it is not wanted.
  at::Tensor like(std::size_t index, const at::Tensor& tensor);
  /// The same for a parameter, as float32 numbers that are summed over heads if it is one number.
  at::Tensor floats_like(std::size_t index, const at::Tensor& parameter, at::IntArrayRef shape);
  /// One that was made elsewhere; returns it.
  at::Tensor keep(std::size_t index, const at::Tensor& gradient, const at::Tensor& parameter);

  std::vector<at::Tensor> list() const;

 private:
  struct Entry {
    std::size_t index;
    at::Tensor gradient, parameter;
  };
  const BackwardInputs& in_;
  EmptyBeside empty_;
  std::vector<Entry> all_;
};

/// Of the parameters of stage 1, whose first is the `first`-th tensor of the arguments.
kernels::EncodingGradients encoding_gradients(Gradients& gradients, std::size_t first,
                                              const VectorArguments& a);

}  // namespace sape2::ops
