#pragma once

namespace sape2::kernels::cuda {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
/// A warpgroup of a block with this many registers a thread at first asks for more, or gives back.
template <int From, int To>
__device__ void change_registers() {
  if constexpr (To > From) {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(To));
  } else if constexpr (To < From) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(To));
  }
}
#endif

}  // namespace sape2::kernels::cuda
