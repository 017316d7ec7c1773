#include "kernels/cuda/stage_one_usual_backward.cuh"
#include "kernels/cuda/stage_one_usual_forward.cuh"

namespace sape2::kernels::cuda {

template bool usual_stage_one_forward<Bf16>(const StageOneParams&, const UsualOutputs&,
                                            cudaStream_t);
template bool usual_stage_one_backward<Bf16>(const StageOneBackward&, cudaStream_t);

}  // namespace sape2::kernels::cuda
