// Entry points of stage 1, and what its backward pass shares with attention's.
#include "kernels/cuda/axis_vectors/generic/kernels.h"
#include "kernels/cuda/axis_vectors/params.h"
#include "kernels/cuda/common/element.cuh"
#include "kernels/cuda/common/partial_sums.h"
#include "kernels/cuda/common/tile.cuh"
#include "kernels/cuda/host/arena.h"
#include "kernels/cuda/host/axis_vectors.h"
#include "kernels/cuda/host/call.h"
#include "kernels/cuda/host/geometry.h"
#include "kernels/cuda/host/launch.h"
#include "kernels/cuda/host/params.h"
#include "kernels/cuda/host/scratch.h"

namespace sape2::kernels::cuda {
namespace {

const TableGradients& of_set(const EncodingGradients& all, const axis_vectors::Params& stage,
                             int set) {
  return set == 0 && stage.first_from_q ? all.q_tables : all.k_tables;
}

/// Stage 1 alone always takes the generic kernels: they write the caller's layout.
void check_inputs(const VectorInputs& in, const Encoding& encoding) {
  Call call;
  call.op = Operator::axis_vectors;
  call.shape = in.shape;
  call.dtype = in.dtype;
  call.source = encoding.source;
  call.span = encoding.span;
  call.positions = encoding.positions;
  check_shape(in.shape);
  check_encoding(encoding);
  check_call(call);
}

/// Zeros for gradients that the kernels add to.
template <class T>
__global__ void clear_kernel(Geometry g, View view) {
  const std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::int64_t row = i / g.head_size;
  if (row >= g.batch_heads * g.tokens) return;
  const std::int64_t head = row / g.tokens;
  head_of<T>(view, head / g.heads, head % g.heads).row(row % g.tokens)[i % g.head_size] =
      narrow<T>(0.0F);
}

template <class T>
void clear(const Geometry& g, const View& view, cudaStream_t stream) {
  constexpr int kPerBlock = 256;
  if (view.data == nullptr) return;
  const std::int64_t count = g.batch_heads * g.tokens * g.head_size;
  launch(clear_kernel<T>, (count + kPerBlock - 1) / kPerBlock, 1, kPerBlock, 0, stream, g, view);
}

}  // namespace

axis_vectors::BackwardParams axis_vector_backward_params(
    const axis_vectors::Params& stage, const axis_vectors::VectorPlaces<const void*>& gradients,
    const View& dq, const View& dk, const EncodingGradients& wanted,
    const AxisVectorScratch& partial) {
  axis_vectors::BackwardParams p{.stage = stage, .gradients = gradients, .dq = dq, .dk = dk};
  for (int axis = 0; axis < 2; ++axis) {
    bool tables = false;
    for (int set = 0; set < stage.sets; ++set) {
      const auto& t = of_set(wanted, stage, set);
      tables = tables || (axis ? t.dy : t.dx) != nullptr;
    }
    if (tables) p.dtables[axis] = partial.dtables[axis];
    if (wanted.dgate_scale != nullptr) p.dgate_scale[axis] = partial.dgate_scale[axis];
    if (wanted.dgate_offset != nullptr) p.dgate_offset[axis] = partial.dgate_offset[axis];
  }
  return p;
}

void sum_axis_vector_gradients(SumJobs& sums, const axis_vectors::Params& stage,
                               const Encoding& encoding, const EncodingGradients& wanted,
                               const AxisVectorScratch& partial) {
  const std::int64_t head_size = stage.geometry.head_size;
  for (int set = 0; set < stage.sets; ++set)
    for (int axis = 0; axis < 2; ++axis) {
      const auto& lines = stage.axes[axis];
      const auto& tables = of_set(wanted, stage, set);
      SumJob job;
      job.parts[0] = {partial.dtables[axis], lines.partial_sums(),
                      stage.sets * lines.positions * head_size, set * lines.positions * head_size};
      job.out = axis ? tables.dy : tables.dx;
      job.out_elements = encoding.positions * head_size;
      job.first = lines.table_first * head_size;
      job.elements = lines.positions * head_size;
      job.per_head = encoding.tables_per_head;
      sums.add(job);
    }
  const auto add_gate = [&](float* out, float* const(&parts)[2]) {
    SumJob job;
    for (int axis = 0; axis < 2; ++axis)
      job.parts[axis] = {parts[axis], stage.axes[axis].partial_sums(), 1};
    job.out = out;
    sums.add(job);
  };
  add_gate(wanted.dgate_scale, partial.dgate_scale);
  add_gate(wanted.dgate_offset, partial.dgate_offset);
}

std::size_t sape2_vectors_workspace(const VectorInputs& in, const Encoding& encoding) {
  check_inputs(in, encoding);
  Arena arena;
  AxisVectorScratch(
      arena, axis_vector_params(geometry_of(in.shape, in.dtype, {}), in.q, in.k, encoding), 0);
  return arena.used();
}

void sape2_vectors_forward(const VectorInputs& in, const Encoding& encoding,
                           const VectorOutputs& outputs, const Launch& launch) {
  check_inputs(in, encoding);
  const auto geometry = geometry_of(in.shape, in.dtype, {in.q, in.k});
  const axis_vectors::ForwardParams p{.stage = axis_vector_params(geometry, in.q, in.k, encoding),
                                      .vectors = {.axes = {outputs.x, outputs.y}, .plain = true}};
  dispatch_type(in.dtype, [&](auto type) {
    axis_vectors::generic::forward<decltype(type)>(p, stream_of(launch));
  });
}

void sape2_vectors_backward(const VectorInputs& in, const Encoding& encoding,
                            const VectorOutputGradients& output_gradients,
                            const VectorInputGradients& d,
                            const EncodingGradients& encoding_gradients, const Launch& launch) {
  check_inputs(in, encoding);
  Arena arena(launch.workspace, launch.workspace_bytes);
  const auto geometry =
      geometry_of(in.shape, in.dtype, {in.q, in.k, as_const(d.dq), as_const(d.dk)});
  const auto stage = axis_vector_params(geometry, in.q, in.k, encoding);
  const AxisVectorScratch partial(arena, stage, 0);
  const axis_vectors::VectorPlaces<const void*> places{
      .axes = {output_gradients.dx, output_gradients.dy}, .plain = true};
  const auto p =
      axis_vector_backward_params(stage, places, d.dq, d.dk, encoding_gradients, partial);
  const auto stream = stream_of(launch);
  dispatch_type(in.dtype, [&](auto type) {
    using T = decltype(type);
    clear<T>(geometry, d.dq, stream);
    clear<T>(geometry, d.dk, stream);
    axis_vectors::generic::backward<T>(p, stream);
  });
  SumJobs sums{.images = in.shape.images, .heads = geometry.heads};
  sum_axis_vector_gradients(sums, stage, encoding, encoding_gradients, partial);
  add_partial_sums(sums, stream);
}

}  // namespace sape2::kernels::cuda
