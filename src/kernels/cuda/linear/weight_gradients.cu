#include "kernels/cuda/linear/launch.cuh"
#include "kernels/cuda/linear/weight_gradients.cuh"

#include <algorithm>

namespace sape2::kernels::cuda::linear {
namespace {

template <class Plan>
GradientJob job_of(const WeightGradient& g) {
  return {
      .dy = matrix_map(g.dy, g.rows, g.outputs, kChunk),
      .x = matrix_map(g.x, g.rows, g.inputs, kChunk),
      .chunks = tiles_of(g.rows, kChunk),
      .column_tiles = tiles_of(g.inputs, Plan::kColumns),
      .first = 0,
      .epilogue = {matrix_map(g.out, g.outputs, g.inputs, kWarpRows), static_cast<int>(g.inputs)}};
}

template <class Plan>
void run(const WeightGradient* gradients, int count, cudaStream_t stream) {
  GradientParams params;
  params.jobs = count;
  params.tiles = 0;
  for (int i = 0; i < count; ++i) {
    params.job[i] = job_of<Plan>(gradients[i]);
    params.job[i].first = params.tiles;
    params.tiles += tiles_of(gradients[i].outputs, kTileRows) * params.job[i].column_tiles;
  }
  launch(weight_gradients_kernel<Plan>, std::min(params.tiles, multiprocessors()),
         {.overlapping = true}, Plan::kThreads, Plan::kSharedBytes, stream, params);
}

}  // namespace

void weight_gradients(int columns, const WeightGradient* gradients, int count,
                      cudaStream_t stream) {
  if (columns == 256) return run<GradientPlan<256, 2>>(gradients, count, stream);
  run<GradientPlan<192, 3>>(gradients, count, stream);
}

}  // namespace sape2::kernels::cuda::linear
