#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"

namespace sape2::kernels::cuda {
namespace {

constexpr int kLanes = 32;   // neighbouring elements of one block
constexpr int kSlices = 32;  // each adds every 32nd partial sum
constexpr int kAtOnce = 8;   // partial sums that are read before the first is added

/// The sum over a slice's share of `count` partial sums; place(r) is where number r is.
template <class Place>
__device__ float sum_of_slice(const float* from, int slice, int count, Place place) {
  float sum = 0.0F;
#pragma unroll 1
  for (int first = slice; first < count; first += kAtOnce * kSlices) {
    float parts[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int r = first + i * kSlices;
      parts[i] = r < count ? from[place(r)] : 0.0F;
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) sum += parts[i];
  }
  return sum;
}

__global__ void __launch_bounds__(kLanes* kSlices) sum_kernel(const __grid_constant__ SumJobs all) {
  __shared__ float slices[kSlices][kLanes + 1];
  const unsigned lane = threadIdx.x % kLanes, slice = threadIdx.x / kLanes;
  const SumJob& job = all.jobs[blockIdx.y];
  // 32 bits count outputs and partial sums (see add_partial_sums).
  const unsigned size = static_cast<unsigned>(job.out_elements);
  const unsigned outputs = size * (job.per_head ? all.heads : 1);
  if (blockIdx.x * kLanes >= outputs) return;
  const unsigned i = blockIdx.x * kLanes + lane, head = i / size;
  const std::int64_t element = std::int64_t(i - head * size) - job.first;
  wait_for_previous();
  let_next_begin();
  float sum = 0.0F;
  if (i < outputs && element >= 0 && element < job.elements) {
    for (const PartialSums& part : job.parts) {
      const float* const from = part.data + part.offset + element;
      const unsigned blocks = static_cast<unsigned>(part.blocks);
      const int images = static_cast<int>(all.images);
      if (job.per_head) {
        sum += sum_of_slice(from, slice, images * blocks, [&](unsigned r) {
          const unsigned image = r / blocks;
          return std::int64_t((image * all.heads + head) * blocks + (r - image * blocks)) *
                 part.stride;
        });
      } else {
        sum += sum_of_slice(from, slice, images * blocks * all.heads,
                            [&](unsigned r) { return r * part.stride; });
      }
    }
  }
  slices[slice][lane] = sum;
  __syncthreads();
  // A warp adds the slices of one element.
  sum = slices[lane][slice];
#pragma unroll
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  const unsigned own = blockIdx.x * kLanes + slice;
  if (lane == 0 && own < outputs) job.out[own] = sum;
}

}  // namespace

void add_partial_sums(const SumJobs& jobs, cudaStream_t stream) {
  std::int64_t most = 0;
  for (int j = 0; j < jobs.count; ++j) {
    const std::int64_t outputs =
        jobs.jobs[j].out_elements * (jobs.jobs[j].per_head ? jobs.heads : 1);
    most = outputs > most ? outputs : most;
  }
  if (most == 0) return;
  // Launches have fewer blocks than that, so there are no more partial sums either.
  if (most > 0x7fffffff)
    throw Error("CUDA: tables have " + std::to_string(most) +
                " numbers in all heads, more than 2^31; use fewer positions");
  launch(sum_kernel, (most + kLanes - 1) / kLanes, {.parts = jobs.count, .overlapping = true},
         kLanes * kSlices, 0, stream, jobs);
}

}  // namespace sape2::kernels::cuda
