#include "sape2/kernels/cope.h"

#include "cpu/cope_pass.h"
#include "cpu/reduce.h"
#include "validate.h"

namespace sape2::kernels {
namespace {

/// Raster order is the order of the tokens: one row of them, none in front.
AttentionTask cope_task(const AttentionInputs& inputs, const CopeEncoding& encoding) {
  check_inputs(inputs);
  check_encoding(encoding);
  AttentionInputs row = inputs;
  row.shape.rows = 1;
  row.shape.cols = inputs.shape.tokens();
  row.shape.prefix = 0;
  return AttentionTask(row);
}

}  // namespace

void cope_attention_forward(const AttentionInputs& inputs, const CopeEncoding& encoding,
                            const AttentionOutputs& outputs, const Executor& executor) {
  AttentionTask task = cope_task(inputs, encoding);
  check_outputs(outputs);
  task.outputs = outputs;
  executor.parallel_for(task.chunks.count(), [&](std::int64_t begin, std::int64_t end) {
    cope_forward_chunks(task, encoding, begin, end);
  });
}

void cope_attention_backward(const AttentionInputs& inputs, const CopeEncoding& encoding,
                             const AttentionSaved& saved, const AttentionGradients& gradients,
                             float* dtable, const Executor& executor) {
  AttentionTask task = cope_task(inputs, encoding);
  check_saved(saved);
  task.saved = saved;
  task.gradients = gradients;
  GradientSums sums(task.chunks, task.layout, 1, encoding.positions);
  task.chunk_gradients = sums.chunks();
  executor.parallel_for(task.chunks.count(), [&](std::int64_t begin, std::int64_t end) {
    cope_backward_chunks(task, encoding, begin, end);
  });
  sums.write_table(0, 0, static_cast<int>(encoding.positions), -1, dtable);
}

}  // namespace sape2::kernels
