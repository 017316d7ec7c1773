#pragma once

#include "sape2/kernels/vectors.h"

#include "cpu/task.h"

namespace sape2::kernels {

/// One pass of stage 1 alone, forward or backward, over all images and heads.
struct VectorsTask {
  Layout layout;
  Chunks chunks;
  VectorInputs inputs;
  const Encoding& encoding;
  VectorOutputs outputs;
  VectorOutputGradients output_gradients;
  VectorInputGradients gradients;
  ChunkGradients* chunk_gradients = nullptr;  ///< one a chunk

  VectorsTask(const VectorInputs& inputs_, const Encoding& encoding_)
      : layout(inputs_.shape), chunks(inputs_.shape), inputs(inputs_), encoding(encoding_) {}
};

void vectors_forward_chunks(const VectorsTask& task, std::int64_t begin, std::int64_t end);
void vectors_backward_chunks(const VectorsTask& task, std::int64_t begin, std::int64_t end);

}  // namespace sape2::kernels
