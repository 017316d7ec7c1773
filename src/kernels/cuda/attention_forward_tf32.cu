#include "kernels/cuda/attention_forward.cuh"

namespace sape2::kernels::cuda {

template void attention_forward<Tf32>(const AttentionParams&, BiasForm, cudaStream_t);

}  // namespace sape2::kernels::cuda
