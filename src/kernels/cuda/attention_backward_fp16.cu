#include "kernels/cuda/attention_backward.cuh"

namespace sape2::kernels::cuda {

template void attention_backward<Fp16>(const BackwardParams&, BiasForm, cudaStream_t, const GoOn&);

}  // namespace sape2::kernels::cuda
