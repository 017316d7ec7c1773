#include "kernels/cuda/linear/launch.cuh"

namespace sape2::kernels::cuda::linear {

void gelu(int columns, const Product& p, const void* bias, void* out, void* derivative,
          cudaStream_t stream) {
  const GeluParams epilogue{.out = matrix_map(out, p.rows, p.width, kWarpRows),
                            .derivative = matrix_map(derivative == nullptr ? out : derivative,
                                                     p.rows, p.width, kWarpRows),
                            .bias = static_cast<const Bf16*>(bias),
                            .width = static_cast<int>(p.width),
                            .differentiates = derivative != nullptr};
  with_resident<false>(columns,
                       [&](auto plan) { run_resident<decltype(plan), Gelu>(p, epilogue, stream); });
}

}  // namespace sape2::kernels::cuda::linear
