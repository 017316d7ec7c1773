#include "kernels/cuda/linear/launch.cuh"

namespace sape2::kernels::cuda::linear {

bool times_derivative(const ResidentVariant& variant, const Product& p, const void* derivative,
                      void* out, float* partials, int* partial_rows, cudaStream_t stream) {
  const TimesDerivativeParams epilogue{
      .out = matrix_map(out, p.rows, p.width, kWarpRows),
      .derivative = matrix_map(derivative, p.rows, p.width, kWarpRows),
      .partials = partials,
      .width = static_cast<int>(p.width)};
  return with_resident<true>(variant, [&](auto plan) {
    using Plan = decltype(plan);
    if constexpr (Plan::kSlots * kPanel < Plan::kColumns) {
      return false;
    } else {
      *partial_rows = resident_sizes<Plan>(p).blocks;
      return run_resident<Plan, TimesDerivative>(p, epilogue, stream);
    }
  });
}

}  // namespace sape2::kernels::cuda::linear
