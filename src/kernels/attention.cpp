#include "sape2/kernels/attention.h"

#include "cpu/attention_pass.h"
#include "cpu/reduce.h"
#include "validate.h"

namespace sape2::kernels {
namespace {

void run_forward(AttentionTask& task, const AttentionOutputs& outputs, const Executor& executor) {
  check_outputs(outputs);
  task.outputs = outputs;
  executor.parallel_for(task.chunks.count(), [&](std::int64_t begin, std::int64_t end) {
    forward_chunks(task, begin, end);
  });
}

/// Room for what the chunks of a backward pass add up.
GradientSums sums_for(const AttentionTask& task) {
  const Encoding* encoding = task.encoding;
  return GradientSums(task.chunks, task.layout, encoding ? sets_of(encoding->source) : 0,
                      encoding ? encoding->positions : 0);
}

void run_backward(AttentionTask& task, const AttentionSaved& saved,
                  const AttentionGradients& gradients, GradientSums& sums,
                  const Executor& executor) {
  check_saved(saved);
  task.saved = saved;
  task.gradients = gradients;
  task.chunk_gradients = sums.chunks();
  executor.parallel_for(task.chunks.count(), [&](std::int64_t begin, std::int64_t end) {
    backward_chunks(task, begin, end);
  });
}

AttentionTask plain_task(const AttentionInputs& inputs) {
  check_inputs(inputs);
  return AttentionTask(inputs);
}

TileBias::Kind bias_kind(Form form) {
  return form == Form::distance ? TileBias::Kind::tile : TileBias::Kind::direct;
}

AttentionTask axis_bias_task(const AttentionInputs& inputs, const AxisVectors& vectors, Form form,
                             const Bias& bias) {
  check_inputs(inputs);
  check_vectors(vectors);
  check_bias(bias);
  AttentionTask task(inputs);
  task.kind = bias_kind(form);
  task.bias = bias;
  task.vectors = vectors;
  return task;
}

AttentionTask sape2_task(const AttentionInputs& inputs, const Encoding& encoding, Form form,
                         const Bias& bias) {
  check_inputs(inputs);
  check_encoding(encoding, inputs.shape);
  check_bias(bias);
  AttentionTask task(inputs);
  task.kind = bias_kind(form);
  task.bias = bias;
  task.encoding = &encoding;
  return task;
}

}  // namespace

void plain_attention_forward(const AttentionInputs& inputs, const AttentionOutputs& outputs,
                             const Executor& executor) {
  AttentionTask task = plain_task(inputs);
  run_forward(task, outputs, executor);
}

void plain_attention_backward(const AttentionInputs& inputs, const AttentionSaved& saved,
                              const AttentionGradients& gradients, const Executor& executor) {
  AttentionTask task = plain_task(inputs);
  GradientSums sums = sums_for(task);
  run_backward(task, saved, gradients, sums, executor);
}

void axis_bias_attention_forward(const AttentionInputs& inputs, const AxisVectors& vectors,
                                 Form form, const Bias& bias, const AttentionOutputs& outputs,
                                 const Executor& executor) {
  AttentionTask task = axis_bias_task(inputs, vectors, form, bias);
  run_forward(task, outputs, executor);
}

void axis_bias_attention_backward(const AttentionInputs& inputs, const AxisVectors& vectors,
                                  Form form, const Bias& bias, const AttentionSaved& saved,
                                  const AttentionGradients& gradients,
                                  const AxisVectorGradients& vector_gradients,
                                  const Executor& executor) {
  AttentionTask task = axis_bias_task(inputs, vectors, form, bias);
  task.vector_gradients = vector_gradients;
  GradientSums sums = sums_for(task);
  run_backward(task, saved, gradients, sums, executor);
  sums.write_gain(vector_gradients.dgain);
}

void sape2_attention_forward(const AttentionInputs& inputs, const Encoding& encoding, Form form,
                             const Bias& bias, const AttentionOutputs& outputs,
                             const Executor& executor) {
  AttentionTask task = sape2_task(inputs, encoding, form, bias);
  run_forward(task, outputs, executor);
}

void sape2_attention_backward(const AttentionInputs& inputs, const Encoding& encoding, Form form,
                              const Bias& bias, const AttentionSaved& saved,
                              const AttentionGradients& gradients,
                              const EncodingGradients& encoding_gradients, float* dgain,
                              const Executor& executor) {
  AttentionTask task = sape2_task(inputs, encoding, form, bias);
  GradientSums sums = sums_for(task);
  run_backward(task, saved, gradients, sums, executor);
  sums.write_gain(dgain);
  sums.write_encoding(encoding, encoding_gradients);
}

}  // namespace sape2::kernels
