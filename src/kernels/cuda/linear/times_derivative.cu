#include "kernels/cuda/linear/launch.cuh"

namespace sape2::kernels::cuda::linear {

int times_derivative(int columns, const Product& p, const void* derivative, void* out,
                     float* partials, cudaStream_t stream) {
  const TimesDerivativeParams epilogue{
      .out = matrix_map(out, p.rows, p.width, kWarpRows),
      .derivative = matrix_map(derivative, p.rows, p.width, kWarpRows),
      .partials = partials,
      .width = static_cast<int>(p.width)};
  with_resident<true>(columns, [&](auto plan) {
    run_resident<decltype(plan), TimesDerivative>(p, epilogue, stream);
  });
  return resident_blocks(columns, p.rows, p.width, multiprocessors());
}

}  // namespace sape2::kernels::cuda::linear
