#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"

namespace sape2::kernels::cuda {
namespace {

constexpr int kLanes = 32;   // neighbouring elements of one block
constexpr int kSlices = 32;  // each adds every 32nd partial sum

__global__ void sum_kernel(const __grid_constant__ SumJobs all) {
  __shared__ float slices[kSlices][kLanes];
  const SumJob& job = all.jobs[blockIdx.y];
  const std::int64_t i = std::int64_t(blockIdx.x) * kLanes + threadIdx.x;
  const std::int64_t outputs = job.out_elements * (job.per_head ? all.heads : 1);
  const std::int64_t element = i % job.out_elements - job.first;
  const std::int64_t head = i / job.out_elements;
  float sum = 0.0F;
  if (i < outputs && element >= 0 && element < job.elements) {
    for (const PartialSums& part : job.parts) {
      const std::int64_t in_image = part.blocks * (job.per_head ? 1 : all.heads);
      const float* const from = part.data + part.offset + element;
#pragma unroll 4
      for (std::int64_t r = threadIdx.y; r < all.images * in_image; r += kSlices) {
        const std::int64_t block =
            job.per_head ? (r / in_image * all.heads + head) * part.blocks + r % in_image : r;
        sum += from[block * part.stride];
      }
    }
  }
  slices[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || i >= outputs) return;
  sum = 0.0F;
  for (int slice = 0; slice < kSlices; ++slice) sum += slices[slice][threadIdx.x];
  job.out[i] = sum;
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
  const auto blocks = static_cast<unsigned>((most + kLanes - 1) / kLanes);
  sum_kernel<<<dim3(blocks, jobs.count), dim3(kLanes, kSlices), 0, stream>>>(jobs);
  check(cudaGetLastError(), "launching a kernel");
}

}  // namespace sape2::kernels::cuda
