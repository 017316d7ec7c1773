#pragma once

#include <cuda_runtime.h>

#include <cstdint>

/// Partial sums of many blocks, added in a fixed order.
namespace sape2::kernels::cuda {

/// One array of partial sums: (images, heads, blocks, stride) of which `elements` from `offset` on.
struct PartialSums {
  const float* data = nullptr;
  std::int64_t blocks = 0;
  std::int64_t stride = 0;
  std::int64_t offset = 0;
};

/// out (heads or 1, out_elements): elements first … first + elements − 1 get the sums over images,
/// blocks and, if not `per_head`, heads of both arrays; the others get 0.
struct SumJob {
  PartialSums parts[2];
  float* out = nullptr;
  std::int64_t out_elements = 1, first = 0, elements = 1;
  bool per_head = true;
  bool in_quads = false;  // add_partial_sums finds out
};

inline constexpr int kMaxSumJobs = 8;

struct SumJobs {
  SumJob jobs[kMaxSumJobs];
  int count = 0;
  std::int64_t images = 0;
  int heads = 0;
  bool are_old = false;  // the launch before makes none of the partial sums

  void add(const SumJob& job) {
    if (job.out != nullptr) jobs[count++] = job;
  }
};

/// Overlaps the kernel launched before, who waited for the one in front of it.
void add_partial_sums(SumJobs jobs, cudaStream_t stream);

}  // namespace sape2::kernels::cuda
