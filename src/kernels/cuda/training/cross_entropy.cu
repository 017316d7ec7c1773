#include "sape2/kernels/cuda_training.h"

#include "kernels/cuda/common/element.cuh"
#include "kernels/cuda/host/call.h"
#include "kernels/cuda/host/launch.h"
#include "kernels/cuda/training/vectors4.cuh"

namespace sape2::kernels::cuda {
namespace {

constexpr int kWarps = 32;

__device__ float warp_max(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
  return x;
}

// One block, so that the sum over the images has one order: there are few logits.
template <class T>
__global__ void __launch_bounds__(32 * kWarps)
    cross_entropy_kernel(const T* logits, const float* targets, std::int64_t images, int classes,
                         float scale, float* loss, T* dlogits) {
  __shared__ float losses[kWarps];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float own = 0.0F;
  for (std::int64_t image = warp; image < images; image += kWarps) {
    const T* const row = logits + image * classes;
    const float* const wanted = targets + image * classes;
    float largest = -INFINITY;
    for (int c = lane; c < classes; c += 32) largest = fmaxf(largest, widen(row[c]));
    largest = warp_max(largest);
    float sum = 0.0F, product = 0.0F, all = 0.0F;
    for (int c = lane; c < classes; c += 32) {
      const float x = widen(row[c]) - largest;
      sum += expf(x);
      product += wanted[c] * x;
      all += wanted[c];
    }
    sum = warp_sum(sum);
    product = warp_sum(product);
    all = warp_sum(all);
    own += all * logf(sum) - product;
    for (int c = lane; c < classes; c += 32) {
      const float share = expf(widen(row[c]) - largest) / sum;
      dlogits[image * classes + c] = narrow<T>(scale * (all * share - wanted[c]));
    }
  }
  if (lane == 0) losses[warp] = own;
  __syncthreads();
  if (threadIdx.x != 0) return;
  float total = 0.0F;
  for (float one : losses) total += one;
  *loss = scale * total;
}

}  // namespace

void cross_entropy(DType dtype, std::int64_t images, std::int64_t classes, const void* logits,
                   const float* targets, float scale, float* loss, void* dlogits, void* stream) {
  if (images < 0 || classes < 1 || classes > (1 << 24))
    throw Error("cross_entropy: " + std::to_string(images) + " images of " +
                std::to_string(classes) + " classes; at least one class was expected");
  dispatch_type(dtype, [&](auto type) {
    using T = decltype(type);
    launch(cross_entropy_kernel<T>, 1, 1, 32 * kWarps, 0, static_cast<cudaStream_t>(stream),
           static_cast<const T*>(logits), targets, images, static_cast<int>(classes), scale, loss,
           static_cast<T*>(dlogits));
  });
}

}  // namespace sape2::kernels::cuda
