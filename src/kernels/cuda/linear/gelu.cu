#include "kernels/cuda/linear/launch.cuh"

namespace sape2::kernels::cuda::linear {

bool gelu(const ResidentVariant& variant, const Product& p, const void* bias, void* out,
          void* derivative, cudaStream_t stream) {
  const GeluParams epilogue{.out = matrix_map(out, p.rows, p.width, kWarpRows),
                            .derivative = matrix_map(derivative == nullptr ? out : derivative,
                                                     p.rows, p.width, kWarpRows),
                            .bias = static_cast<const Bf16*>(bias),
                            .width = static_cast<int>(p.width),
                            .differentiates = derivative != nullptr};
  return with_resident<false>(
      variant, [&](auto plan) { return run_resident<decltype(plan), Gelu>(p, epilogue, stream); });
}

}  // namespace sape2::kernels::cuda::linear
