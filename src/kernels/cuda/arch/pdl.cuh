#pragma once

/// Programmatic dependent launch: a kernel begins while the one launched before it still runs.
/// Before compute capability 9.0 these functions do nothing.
namespace sape2::kernels::cuda {

/// Waits until the launch before is done and its results are seen. Every block calls it before it
/// looks at that launch's results or writes what that launch reads, and calls pdl_launch_dependents
/// only after it. So whenever a kernel runs, all launches but the one directly before it are done,
/// and where that one is of the same call, whatever else the call reads may be read at once. A
/// call's first kernel does not know whom it follows: it reads nothing before.
__device__ inline void pdl_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// The next launch may begin when every block has called this or is done. Long blocks call it late
/// or never: blocks of the next launch settle wherever there is room first, and are spread the less
/// evenly the more of these are still at work. Where no block calls it, one that waits is enough:
/// the launch is then done only after the one before it.
__device__ inline void pdl_launch_dependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace sape2::kernels::cuda
