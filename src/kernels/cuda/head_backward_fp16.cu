#include "kernels/cuda/head_backward.cuh"

namespace sape2::kernels::cuda {

template void head_attention_backward<Fp16>(const HeadBackward&, BiasForm, cudaStream_t);

}  // namespace sape2::kernels::cuda
