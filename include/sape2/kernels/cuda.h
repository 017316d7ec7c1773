#pragma once

#include "sape2/kernels/attention.h"
#include "sape2/kernels/cope.h"
#include "sape2/kernels/dispatch.h"
#include "sape2/kernels/vectors.h"

#include <cstddef>
#include <string>

/// The kernels on NVIDIA GPUs, compute capability 8.0 and newer. Parameters are those of the CPU
/// kernels with device pointers; float16 is taken too, and null stands for the default numbers:
/// gain 1, gate_scale 1/√head_size, gate_offset 0. Nothing synchronises with the host, so calls may
/// be captured into a CUDA graph. Sums have a fixed order: two runs agree to the last bit.
///
/// Each function needs scratch memory on the device, O(tokens · (rows + cols)) a head: ask for the
/// size, allocate it (aligned to 256 bytes), pass it on. It may be reused once the stream has
/// passed the call. Functions throw sape2::Error, with one sentence, if parameters make no sense
/// or are refused, and if CUDA fails.
namespace sape2::kernels::cuda {

/// Where and with what a call runs.
struct Launch {
  void* stream = nullptr;  ///< a cudaStream_t
  void* workspace = nullptr;
  std::size_t workspace_bytes = 0;
};

/// The current device as dispatch.h sees it.
Device current_device();

/// refusal() of dispatch.h on it.
std::string refusal(const Call& call);

// ------------------------------------------------------------------------------------- no bias

std::size_t plain_attention_workspace(const AttentionInputs& inputs, bool backward);
void plain_attention_forward(const AttentionInputs& inputs, const AttentionOutputs& outputs,
                             const Launch& launch);
void plain_attention_backward(const AttentionInputs& inputs, const AttentionSaved& saved,
                              const AttentionGradients& gradients, const Launch& launch);

// --------------------------------------------------------- stage 2, from given axis vectors

std::size_t axis_bias_attention_workspace(const AttentionInputs& inputs, const AxisVectors& vectors,
                                          Form form, bool backward);
void axis_bias_attention_forward(const AttentionInputs& inputs, const AxisVectors& vectors,
                                 Form form, const Bias& bias, const AttentionOutputs& outputs,
                                 const Launch& launch);
void axis_bias_attention_backward(const AttentionInputs& inputs, const AxisVectors& vectors,
                                  Form form, const Bias& bias, const AttentionSaved& saved,
                                  const AttentionGradients& gradients,
                                  const AxisVectorGradients& vector_gradients,
                                  const Launch& launch);

// ---------------------------------------------------------------------------------- both stages

/// Bytes of stage 1 that forward can save in AttentionOutputs::stage1 (aligned to 256 bytes) and
/// backward read from AttentionSaved::stage1: O(tokens · (rows + cols)) per head, the same for
/// every head. If that is null, which is right for calls without gradients, backward computes stage
/// 1 again. 0 if recomputing costs less than reading.
std::size_t sape2_attention_stage1_bytes(const AttentionInputs& inputs, const Encoding& encoding,
                                         Form form);
/// `saved`: whether stage 1 is.
std::size_t sape2_attention_workspace(const AttentionInputs& inputs, const Encoding& encoding,
                                      Form form, bool backward, bool saved);
void sape2_attention_forward(const AttentionInputs& inputs, const Encoding& encoding, Form form,
                             const Bias& bias, const AttentionOutputs& outputs,
                             const Launch& launch);
void sape2_attention_backward(const AttentionInputs& inputs, const Encoding& encoding, Form form,
                              const Bias& bias, const AttentionSaved& saved,
                              const AttentionGradients& gradients,
                              const EncodingGradients& encoding_gradients, float* dgain,
                              const Launch& launch);

// ------------------------------------------------------------------------ contextual positions

/// Scratch is O(tokens · positions) a head where shared memory does not hold the table values, and
/// backward, beyond 64 tokens, sums of dk and dv for each of a fixed number of blocks.
std::size_t cope_attention_workspace(const AttentionInputs& inputs, const CopeEncoding& encoding,
                                     bool backward);
void cope_attention_forward(const AttentionInputs& inputs, const CopeEncoding& encoding,
                            const AttentionOutputs& outputs, const Launch& launch);
/// `dtable` is (positions, head_size) or null.
void cope_attention_backward(const AttentionInputs& inputs, const CopeEncoding& encoding,
                             const AttentionSaved& saved, const AttentionGradients& gradients,
                             float* dtable, const Launch& launch);

// -------------------------------------------------------------------------------------- stage 1

/// Stage 1 needs no scratch forward.
std::size_t sape2_vectors_workspace(const VectorInputs& inputs, const Encoding& encoding);
void sape2_vectors_forward(const VectorInputs& inputs, const Encoding& encoding,
                           const VectorOutputs& outputs, const Launch& launch);
void sape2_vectors_backward(const VectorInputs& inputs, const Encoding& encoding,
                            const VectorOutputGradients& output_gradients,
                            const VectorInputGradients& gradients,
                            const EncodingGradients& encoding_gradients, const Launch& launch);

}  // namespace sape2::kernels::cuda
