#pragma once

#include "sape2/error.h"

#include "kernels/cuda/element.cuh"

#include <cuda_runtime.h>

#include <string>
#include <type_traits>

/// How kernels are started: limits checked, errors as sentences.
namespace sape2::kernels::cuda {

inline void check(cudaError_t code, const char* what) {
  if (code == cudaSuccess) return;
  throw Error(std::string("CUDA: ") + what + " failed: " + cudaGetErrorString(code) +
              "; check the device and its free memory");
}

/// The most shared memory a block of the current device may have.
int shared_memory_limit();

/// A grid of `blocks` × `parts`.
template <class... Arguments>
void launch(void (*kernel)(Arguments...), std::int64_t blocks, int parts, int threads,
            int shared_bytes, cudaStream_t stream,
            const std::type_identity_t<Arguments>&... arguments) {
  if (blocks == 0) return;
  if (blocks > 0x7fffffff)
    throw Error("CUDA: images × heads × tiles is " + std::to_string(blocks) +
                ", more blocks than a launch may have; split the batch");
  if (shared_bytes > shared_memory_limit())
    throw Error("CUDA: these sizes need " + std::to_string(shared_bytes) +
                " bytes of shared memory in a block, and the device has " +
                std::to_string(shared_memory_limit()) + "; use the reference operators");
  if (shared_bytes > 48 * 1024)
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes),
          "setting a kernel's shared memory");
  kernel<<<dim3(static_cast<unsigned>(blocks), parts), threads, shared_bytes, stream>>>(
      arguments...);
  check(cudaGetLastError(), "launching a kernel");
}

/// Calls use(integral_constant) with the smallest compiled head size that holds `head_size`.
template <class T, class Use>
void dispatch_head_size(int head_size, Use use) {
  if constexpr (!kIsWide<T>)
    if (head_size <= 32) return use(std::integral_constant<int, 32>());
  if (head_size <= 64) return use(std::integral_constant<int, 64>());
  return use(std::integral_constant<int, 128>());
}

}  // namespace sape2::kernels::cuda
