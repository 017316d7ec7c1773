#pragma once

#include "kernels/cuda/attention_head/kernels.h"
#include "kernels/cuda/axis_vectors/params.h"
#include "kernels/cuda/host/call.h"
#include "kernels/cuda/host/params.h"

/// Calls whose heads fit into a block each, see attention_head/layout.h.
namespace sape2::kernels::cuda::head {

/// Gradients of tables, gates and gain; null: not wanted.
struct ParameterGradients {
  EncodingGradients encoding;
  float* dgain = nullptr;
};

class Call {
 public:
  /// No bias.
  Call(const AttentionInputs& in, const Geometry& g);
  /// A bias from given vectors.
  Call(const AttentionInputs& in, const Geometry& g, const AxisVectors& vectors, BiasForm form);
  /// Both stages.
  Call(const AttentionInputs& in, const Geometry& g, const Encoding& encoding, BiasForm form);

  /// Bytes that forward can leave to backward; 0: none.
  std::size_t stage1_bytes() const;
  /// Forward needs none. `saved`: whether stage 1 is.
  std::size_t backward_workspace(bool saved = false) const;
  /// `saved`: where stage 1 is saved; null: it is not.
  void forward(const AttentionParams& p, cudaStream_t stream, void* saved = nullptr) const;
  void backward(const AttentionBackwardParams& p, const AxisVectorGradients& vectors,
                const ParameterGradients& parameters, const Launch& launch,
                const void* saved = nullptr) const;

 private:
  ForwardParams forward_params(const AttentionParams& p, bool backward) const;
  Call of_rows_aligned(bool aligned) const;

  DType dtype_;
  BiasForm form_;
  axis_vectors::Params stage_{};
  bool has_tables_ = false;
  bool tables_per_head_ = false;
  std::int64_t table_rows_ = 0;
  const void* given_[2] = {};
};

}  // namespace sape2::kernels::cuda::head
