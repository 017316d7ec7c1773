#include "sape2/kernels/vectors.h"

#include "cpu/reduce.h"
#include "cpu/vectors_pass.h"
#include "validate.h"

namespace sape2::kernels {

void sape2_vectors_forward(const VectorInputs& inputs, const Encoding& encoding,
                           const VectorOutputs& outputs, const Executor& executor) {
  check_inputs(inputs);
  check_encoding(encoding);
  check_given(outputs.x, "axis vectors x");
  check_given(outputs.y, "axis vectors y");
  VectorsTask task(inputs, encoding);
  task.outputs = outputs;
  executor.parallel_for(task.chunks.count(), [&](std::int64_t begin, std::int64_t end) {
    vectors_forward_chunks(task, begin, end);
  });
}

void sape2_vectors_backward(const VectorInputs& inputs, const Encoding& encoding,
                            const VectorOutputGradients& output_gradients,
                            const VectorInputGradients& gradients,
                            const EncodingGradients& encoding_gradients, const Executor& executor) {
  check_inputs(inputs);
  check_encoding(encoding);
  check_given(output_gradients.dx, "the gradient of axis vectors x");
  check_given(output_gradients.dy, "the gradient of axis vectors y");
  VectorsTask task(inputs, encoding);
  task.output_gradients = output_gradients;
  task.gradients = gradients;
  GradientSums sums(task.chunks, task.layout, sets_of(encoding.source), encoding.positions);
  task.chunk_gradients = sums.chunks();
  executor.parallel_for(task.chunks.count(), [&](std::int64_t begin, std::int64_t end) {
    vectors_backward_chunks(task, begin, end);
  });
  sums.write_encoding(encoding, encoding_gradients);
}

}  // namespace sape2::kernels
