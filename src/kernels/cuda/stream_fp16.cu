#include "kernels/cuda/stream.cuh"

namespace sape2::kernels::cuda {

template bool stream_forward<Fp16>(const AttentionParams&, BiasForm, cudaStream_t);
template bool stream_backward<Fp16>(const BackwardParams&, BiasForm, cudaStream_t, const GoOn&);

}  // namespace sape2::kernels::cuda
