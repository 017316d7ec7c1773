#pragma once

#include "sape2/kernels/executor.h"
#include "sape2/kernels/scratch_pool.h"
#include "sape2/kernels/types.h"
#include "sape2/kernels/vectors.h"

/// Attention in tiles with an online softmax; the bias is made inside the tile. Backward passes
/// recompute, so that nothing of size tokens × tokens is stored. Every function throws
/// sape2::Error, with one sentence, if its parameters make no sense.
namespace sape2::kernels {

struct AttentionInputs {
  Shape shape;
  DType dtype = DType::float32;
  float scale = 1.0F;
  ConstView q, k, v;
  bool tf32 = false;  ///< On a GPU, products of float32 may round their factors to 11 bits.
  ScratchPool* scratch = nullptr;  ///< On a CPU, keeps memory between calls; null: nothing is kept.
};

/// What the backward pass needs to know of a token's softmax. Two numbers, not the logarithm of the
/// sum: if logits are large, that one number would lose digits.
struct SoftmaxRow {
  float maximum;  ///< the largest logit
  float sum;      ///< of e^(logit − maximum)
};

struct AttentionOutputs {
  View out;
  SoftmaxRow* softmax = nullptr;  ///< (images, heads, tokens), contiguous; null: not wanted
  void* stage1 = nullptr;         ///< Only on a GPU, see cuda::sape2_attention_stage1_bytes.
};

/// What a backward pass reads besides the inputs: the forward pass's outputs and the gradient.
struct AttentionSaved {
  ConstView out;
  const SoftmaxRow* softmax = nullptr;  ///< AttentionOutputs::softmax
  ConstView dout;
  const void* stage1 = nullptr;  ///< AttentionOutputs::stage1
};

struct AttentionGradients {
  View dq, dk, dv;
};

// ---------------------------------------------------------------------------- no bias

void plain_attention_forward(const AttentionInputs& inputs, const AttentionOutputs& outputs,
                             const Executor& executor);
void plain_attention_backward(const AttentionInputs& inputs, const AttentionSaved& saved,
                              const AttentionGradients& gradients, const Executor& executor);

// ------------------------------------------------- stage 2: a bias from given axis vectors

/// logit = scale · (q·k + gain · b) if `inside`, else scale · q·k + gain · b.
struct Bias {
  const float* gain = nullptr;  ///< (heads)
  bool inside = true;
};

/// Axis vectors, contiguous, in the inputs' dtype. Two sets make two biases, which add.
struct AxisVectors {
  std::int64_t sets = 1;    ///< 1 or 2
  const void* x = nullptr;  ///< (sets, images, heads, patches, cols)
  const void* y = nullptr;  ///< (sets, images, heads, patches, rows)
  bool shared = false;      ///< On a CPU, forward: one image's vectors, which all images share.
};

/// Null: not wanted.
struct AxisVectorGradients {
  void* dx = nullptr;      ///< like AxisVectors::x
  void* dy = nullptr;      ///< like AxisVectors::y
  float* dgain = nullptr;  ///< (heads)
};

/// For two patches, by `form`; 0 if one of the two is a prefix token:
///   distance: b_in = ‖x_i − x_n‖ + ‖y_i − y_n‖
///   direct:   b_in = x_i[column of n] + y_i[row of n]
void axis_bias_attention_forward(const AttentionInputs& inputs, const AxisVectors& vectors,
                                 Form form, const Bias& bias, const AttentionOutputs& outputs,
                                 const Executor& executor);
void axis_bias_attention_backward(const AttentionInputs& inputs, const AxisVectors& vectors,
                                  Form form, const Bias& bias, const AttentionSaved& saved,
                                  const AttentionGradients& gradients,
                                  const AxisVectorGradients& vector_gradients,
                                  const Executor& executor);

// --------------------------------------------- both stages: the vectors come from q, k and tables

void sape2_attention_forward(const AttentionInputs& inputs, const Encoding& encoding, Form form,
                             const Bias& bias, const AttentionOutputs& outputs,
                             const Executor& executor);

/// `dgain` is (heads) or null.
void sape2_attention_backward(const AttentionInputs& inputs, const Encoding& encoding, Form form,
                              const Bias& bias, const AttentionSaved& saved,
                              const AttentionGradients& gradients,
                              const EncodingGradients& encoding_gradients, float* dgain,
                              const Executor& executor);

}  // namespace sape2::kernels
