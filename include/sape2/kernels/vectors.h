#pragma once

#include "sape2/kernels/executor.h"
#include "sape2/kernels/types.h"

/// Stage 1: q, k and the position tables become one vector an axis for every patch.
namespace sape2::kernels {

/// One pair of position tables, (positions, head_size) or (heads, positions, head_size).
struct Tables {
  const float* x = nullptr;
  const float* y = nullptr;
};

/// Gates, positions and tables: everything stage 1 needs besides q and k.
struct Encoding {
  Source source = Source::k;
  Span span = Span::suffix;
  std::int64_t positions = 0;  ///< M, rows of a table; odd for Span::between
  bool tables_per_head = false;
  const float* gate_scale = nullptr;   ///< (heads); open gates: 0 …
  const float* gate_offset = nullptr;  ///< (heads); … and +infinity
  Tables q_tables;                     ///< for Source::q and Source::qk
  Tables k_tables;                     ///< for Source::k and Source::qk
};

/// Gradients of one pair of tables, in their shape. Null: not wanted.
struct TableGradients {
  float* dx = nullptr;
  float* dy = nullptr;
};

/// Null: not wanted. Overwritten, not added to.
struct EncodingGradients {
  TableGradients q_tables;
  TableGradients k_tables;
  float* dgate_scale = nullptr;   ///< (heads)
  float* dgate_offset = nullptr;  ///< (heads)
};

struct VectorInputs {
  Shape shape;
  DType dtype = DType::float32;
  ConstView q, k;
};

/// Contiguous, in the inputs' dtype; two sets (from q, then from k) for Source::qk, else one.
struct VectorOutputs {
  void* x = nullptr;  ///< (sets, images, heads, patches, cols)
  void* y = nullptr;  ///< (sets, images, heads, patches, rows)
};

struct VectorOutputGradients {
  const void* dx = nullptr;  ///< like VectorOutputs::x
  const void* dy = nullptr;  ///< like VectorOutputs::y
};

struct VectorInputGradients {
  View dq, dk;
};

void sape2_vectors_forward(const VectorInputs& inputs, const Encoding& encoding,
                           const VectorOutputs& outputs, const Executor& executor);
void sape2_vectors_backward(const VectorInputs& inputs, const Encoding& encoding,
                            const VectorOutputGradients& output_gradients,
                            const VectorInputGradients& gradients,
                            const EncodingGradients& encoding_gradients, const Executor& executor);

}  // namespace sape2::kernels
