#include "kernels/cuda/cope_backward.cuh"
#include "kernels/cuda/cope_forward.cuh"

namespace sape2::kernels::cuda {

template void cope_forward<Bf16>(const CopeForwardParams&, cudaStream_t);
template void cope_backward<Bf16>(const CopeBackwardParams&, int, cudaStream_t);
template int cope_forward_shared<Bf16>(int);
template int cope_backward_shared<Bf16>(int);

}  // namespace sape2::kernels::cuda
