#pragma once

#include "kernels/cuda/common/element.cuh"
#include "kernels/cuda/host/device.h"
#include "kernels/cuda/host/geometry.h"

#include <type_traits>

/// How kernels are started: limits checked, errors as sentences.
namespace sape2::kernels::cuda {

/// Lets `kernel` have `shared_bytes` of shared memory in a block. `beside_others`: blocks of
/// neighbouring launches meet on a multiprocessor. Were its memory divided for less, the second
/// would find room for fewer of its blocks until the first has left.
/// Remembered, because telling the driver takes a third of a launch's time; who resets the device
/// must not call on.
void set_up_kernel(const void* kernel, int shared_bytes, bool beside_others);

/// What sm_90a code can do besides. Other code takes no clusters, and overlaps nothing.
struct LaunchOptions {
  int parts = 1;    // the grid is blocks × parts
  int cluster = 1;  // neighbouring blocks that see each other's shared memory
  // The kernel may begin before the launch in front of it is done; see pdl_wait.
  bool overlapping = false;
};

template <class... Arguments>
void launch(void (*kernel)(Arguments...), std::int64_t blocks, const LaunchOptions& options,
            int threads, int shared_bytes, cudaStream_t stream,
            const std::type_identity_t<Arguments>&... arguments) {
  if (blocks == 0) return;
  if (blocks > 0x7fffffff)
    throw Error("CUDA: images × heads × tiles is " + std::to_string(blocks) +
                ", more blocks than a launch may have; split the batch");
  if (shared_bytes > shared_memory_limit())
    throw Error("CUDA: these sizes need " + std::to_string(shared_bytes) +
                " bytes of shared memory in a block, and the device has " +
                std::to_string(shared_memory_limit()) + "; use the reference operators");
  const bool overlapping = options.overlapping && is_sm90a();
  set_up_kernel(reinterpret_cast<const void*>(kernel), shared_bytes, overlapping);
  cudaLaunchAttribute attributes[2]{};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks), options.parts);
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  if (options.cluster > 1) {
    auto& attribute = attributes[config.numAttrs++];
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {static_cast<unsigned>(options.cluster), 1, 1};
  }
  if (overlapping) {
    auto& attribute = attributes[config.numAttrs++];
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
  }
  check(cudaLaunchKernelEx(&config, kernel, arguments...), "launching a kernel");
}

/// A grid of `blocks` × `parts`.
template <class... Arguments>
void launch(void (*kernel)(Arguments...), std::int64_t blocks, int parts, int threads,
            int shared_bytes, cudaStream_t stream,
            const std::type_identity_t<Arguments>&... arguments) {
  launch(kernel, blocks, LaunchOptions{.parts = parts}, threads, shared_bytes, stream,
         arguments...);
}

/// Calls use(integral_constant) with the smallest compiled head size that holds `head_size`.
template <class T, class Use>
void dispatch_head_size(int head_size, Use use) {
  if constexpr (!kIsFp32<T>)
    if (head_size <= 32) return use(std::integral_constant<int, 32>());
  if (head_size <= 64) return use(std::integral_constant<int, 64>());
  static_assert(kLargestHead == 128, "calls of larger heads need a compiled size of their own");
  return use(std::integral_constant<int, kLargestHead>());
}

}  // namespace sape2::kernels::cuda
