#include "kernels/cuda/head_forward.cuh"

namespace sape2::kernels::cuda {

template void head_attention_forward<Fp16>(const HeadForward&, BiasForm, cudaStream_t);

}  // namespace sape2::kernels::cuda
