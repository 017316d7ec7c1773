#include "kernels/cuda/cope_backward.cuh"
#include "kernels/cuda/cope_forward.cuh"

namespace sape2::kernels::cuda {

template void cope_forward<Fp16>(const CopeForwardParams&, cudaStream_t);
template void cope_backward<Fp16>(const CopeBackwardParams&, int, cudaStream_t);
template int cope_forward_shared<Fp16>(int);
template int cope_backward_shared<Fp16>(int);

}  // namespace sape2::kernels::cuda
