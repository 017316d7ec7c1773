#include "kernels/cuda/arch/pdl.cuh"
#include "kernels/cuda/common/partial_sums.h"
#include "kernels/cuda/host/launch.h"

#include <algorithm>

namespace sape2::kernels::cuda {
namespace {

constexpr int kLanes = 8;    // neighbouring numbers, or quads of them, of one block
constexpr int kSlices = 32;  // as a warp has lanes; each adds every 32nd partial sum
constexpr int kAtOnce = 8;   // partial sums that are read before the first is added

__device__ void add(float& sum, float x) {
  sum += x;
}
__device__ void add(float4& sum, const float4& x) {
  sum.x += x.x;
  sum.y += x.y;
  sum.z += x.z;
  sum.w += x.w;
}
__device__ float from_lane(float x, int step) {
  return __shfl_xor_sync(0xffffffffu, x, step);
}
__device__ float4 from_lane(const float4& x, int step) {
  return make_float4(from_lane(x.x, step), from_lane(x.y, step), from_lane(x.z, step),
                     from_lane(x.w, step));
}

/// The sum over a slice's share of `count` partial sums; place(r) is where number r is.
template <class Number, class Place>
__device__ Number sum_of_slice(const float* from, int slice, int count, Place place) {
  Number sum{};
#pragma unroll 1
  for (int first = slice; first < count; first += kAtOnce * kSlices) {
    Number parts[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int r = first + i * kSlices;
      parts[i] = r < count ? __ldcg(reinterpret_cast<const Number*>(from + place(r))) : Number{};
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) add(sum, parts[i]);
  }
  return sum;
}

/// `Number`: float, or float4 where four neighbours lie aligned everywhere.
template <class Number>
__device__ void run_job(const SumJobs& all, const SumJob& job) {
  constexpr unsigned kWide = sizeof(Number) / sizeof(float);
  __shared__ Number slices[kSlices][kLanes + 1];
  const unsigned lane = threadIdx.x % kLanes, slice = threadIdx.x / kLanes;
  // 32 bits count outputs and partial sums (see add_partial_sums).
  const unsigned size = static_cast<unsigned>(job.out_elements);
  const unsigned outputs = size * (job.per_head ? all.heads : 1);
  // Without a wait: of the longest job, blocks do wait, and the next launch for them.
  if (blockIdx.x * kLanes * kWide >= outputs) return;
  const unsigned i = (blockIdx.x * kLanes + lane) * kWide, head = i / size;
  const std::int64_t element = std::int64_t(i - head * size) - job.first;
  if (!all.are_old) {
    pdl_wait();
    pdl_launch_dependents();
  }
  Number sum{};
  if (i < outputs && element >= 0 && element < job.elements) {
    for (const PartialSums& part : job.parts) {
      const float* const from = part.data + part.offset + element;
      const unsigned blocks = static_cast<unsigned>(part.blocks);
      const int images = static_cast<int>(all.images);
      if (job.per_head) {
        add(sum, sum_of_slice<Number>(from, slice, images * blocks, [&](unsigned r) {
              const unsigned image = r / blocks;
              return std::int64_t((image * all.heads + head) * blocks + (r - image * blocks)) *
                     part.stride;
            }));
      } else {
        add(sum, sum_of_slice<Number>(from, slice, images * blocks * all.heads,
                                      [&](unsigned r) { return r * part.stride; }));
      }
    }
  }
  slices[slice][lane] = sum;
  __syncthreads();
  // A warp adds the slices of one lane.
  const unsigned part = threadIdx.x % kSlices, own_lane = threadIdx.x / kSlices;
  sum = slices[part][own_lane];
#pragma unroll
  for (int step = 16; step > 0; step /= 2) add(sum, from_lane(sum, step));
  const unsigned own = (blockIdx.x * kLanes + own_lane) * kWide;
  if (part == 0 && own < outputs) *reinterpret_cast<Number*>(job.out + own) = sum;
  // The next launch takes it that all before this one is done. One block is enough to see to that,
  // and others need not keep their place.
  if (all.are_old && blockIdx.x == 0 && blockIdx.y == 0) pdl_wait();
}

__global__ void __launch_bounds__(kLanes* kSlices) sum_kernel(const __grid_constant__ SumJobs all) {
  const SumJob& job = all.jobs[blockIdx.y];
  if (job.in_quads) return run_job<float4>(all, job);
  run_job<float>(all, job);
}

/// Whether partial sums and results are all made of aligned quads.
bool lies_in_quads(const SumJob& job) {
  std::int64_t all = job.out_elements | job.first | job.elements;
  auto address = reinterpret_cast<std::uintptr_t>(job.out);
  for (const auto& part : job.parts) {
    all |= part.stride | part.offset;
    address |= reinterpret_cast<std::uintptr_t>(part.data);
  }
  return all % 4 == 0 && address % sizeof(float4) == 0;
}

}  // namespace

void add_partial_sums(SumJobs jobs, cudaStream_t stream) {
  std::int64_t most = 0, blocks = 0;
  for (int j = 0; j < jobs.count; ++j) {
    SumJob& job = jobs.jobs[j];
    const std::int64_t outputs = job.out_elements * (job.per_head ? jobs.heads : 1);
    job.in_quads = lies_in_quads(job);
    const std::int64_t lanes = job.in_quads ? outputs / 4 : outputs;
    most = std::max(most, outputs);
    blocks = std::max(blocks, (lanes + kLanes - 1) / kLanes);
  }
  // Launches have fewer blocks than that, so there are no more partial sums either.
  if (most > 0x7fffffff)
    throw Error("CUDA: tables have " + std::to_string(most) +
                " numbers in all heads, more than 2^31; use fewer positions");
  launch(sum_kernel, blocks, {.parts = jobs.count, .overlapping = true}, kLanes * kSlices, 0,
         stream, jobs);
}

}  // namespace sape2::kernels::cuda
