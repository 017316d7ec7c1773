#include "kernels/cuda/stage_one_backward.cuh"
#include "kernels/cuda/stage_one_forward.cuh"

namespace sape2::kernels::cuda {

template void stage_one_forward<Bf16>(const StageOneForward&, cudaStream_t);
template void stage_one_backward<Bf16>(const StageOneBackward&, cudaStream_t);

}  // namespace sape2::kernels::cuda
