#include "kernels/cuda/cope_backward.cuh"
#include "kernels/cuda/cope_forward.cuh"

namespace sape2::kernels::cuda {

template void cope_forward<float>(const CopeForwardParams&, cudaStream_t);
template void cope_backward<float>(const CopeBackwardParams&, int, cudaStream_t);
template int cope_forward_shared<float>(int);
template int cope_backward_shared<float>(int);

}  // namespace sape2::kernels::cuda
