#pragma once

#include "kernels/cuda/common.h"
#include "kernels/cuda/head_attention.h"

/// Calls whose heads fit into a block each, see head_layout.h.
namespace sape2::kernels::cuda {

/// Gradients of tables, gates and gain; null: not wanted.
struct HeadParameterGradients {
  EncodingGradients encoding;
  float* dgain = nullptr;
};

class HeadCall {
 public:
  /// No bias.
  HeadCall(const AttentionInputs& in, const Geometry& g);
  /// A bias from given vectors.
  HeadCall(const AttentionInputs& in, const Geometry& g, const AxisVectors& vectors, BiasForm form);
  /// Both stages.
  HeadCall(const AttentionInputs& in, const Geometry& g, const Encoding& encoding, BiasForm form);

  /// Whether this call runs a head a block, forward and backward alike.
  bool fits() const;

  /// Bytes that forward can leave to backward; 0: none.
  std::size_t kept_bytes() const;
  /// Forward needs none. `kept`: whether there is such memory.
  std::size_t backward_workspace(bool kept = false) const;
  /// `kept`: null, where nothing is kept.
  void forward(const AttentionParams& p, cudaStream_t stream, void* kept = nullptr) const;
  void backward(const BackwardParams& p, const AxisVectorGradients& vectors,
                const HeadParameterGradients& parameters, const Launch& launch,
                const void* kept = nullptr) const;

 private:
  HeadForward forward_params(const AttentionParams& p, bool backward) const;
  HeadCall of_rows_aligned(bool aligned) const;

  DType dtype_;
  float scale_;
  BiasForm form_;
  StageOneParams stage_{};
  bool has_tables_ = false;
  bool tables_per_head_ = false;
  std::int64_t table_rows_ = 0;
  const void* given_[2] = {};
};

}  // namespace sape2::kernels::cuda
