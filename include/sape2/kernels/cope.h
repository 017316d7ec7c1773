#pragma once

#include "sape2/kernels/attention.h"

namespace sape2::kernels {

/// Contextual positions over the raster order of all tokens: gates sigmoid(gate_scale · q·k),
/// positions their sums to the end of the sequence, clamped to `positions - 1`.
struct CopeEncoding {
  std::int64_t positions = 0;    ///< M, rows of the table
  const float* table = nullptr;  ///< (positions, head_size)
  float gate_scale = 1.0F;
  bool inside = false;  ///< logit = scale · (q·k + interp) if inside, else scale · q·k + interp
};

/// `inputs.shape` may say its tokens in any way, e.g. one row: all are ordinary here.
void cope_attention_forward(const AttentionInputs& inputs, const CopeEncoding& encoding,
                            const AttentionOutputs& outputs, const Executor& executor);

/// `dtable` is (positions, head_size) or null.
void cope_attention_backward(const AttentionInputs& inputs, const CopeEncoding& encoding,
                             const AttentionSaved& saved, const AttentionGradients& gradients,
                             float* dtable, const Executor& executor);

}  // namespace sape2::kernels
