#include "kernels/cuda/attention_backward.cuh"

namespace sape2::kernels::cuda {

template void attention_backward<float>(const BackwardParams&, BiasForm, cudaStream_t, const GoOn&);

}  // namespace sape2::kernels::cuda
