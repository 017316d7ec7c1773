#pragma once

#include "kernels/cuda/stage_one_usual.cuh"

/// Rows of dq and dk that stage 1's way back adds to, where sizes are known to the compiler.
namespace sape2::kernels::cuda {

/// Where 16 rows of a tensor are, as they are read and written: every fourth by one lane, 16 bytes
/// each.
template <class T>
struct UsualRows {
  T* at;
  int step;
  int left;  // of the lane's rows 0, 4, 8, 12 those below this one exist
  uint4 old[4];

  __device__ UsualRows(const UsualTensor<T>& to, const AxisLines& axis, int line, int place) {
    int lane = threadIdx.x % 32;
    // Worked out wherever rows are named: kept, places would take registers from what lies between.
    asm volatile("" : "+r"(lane));
    at = to.data + (line * to.across + (place + lane / 8) * to.along + lane % 8 * 8);
    step = 4 * to.along;
    left = line < axis.lines ? axis.length - place - lane / 8 : 0;
  }
  /// From the cache that all multiprocessors share: another launch may just have written there.
  __device__ void read() {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (4 * i < left) old[i] = __ldcg(reinterpret_cast<const uint4*>(at + i * step));
  }
  /// The same by way of shared memory, where each lane keeps what is its own: take when the copies
  /// are done.
  __device__ void fetch(unsigned char* kept) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) copy_async_16(place(kept, i), at + i * step, 4 * i < left);
    commit_copies();
  }
  __device__ void take(unsigned char* kept) {
#pragma unroll
    for (int i = 0; i < 4; ++i) old[i] = *place(kept, i);
  }
  /// Adds a result to what was read, by way of shared memory.
  __device__ void add(const float (&c)[kUsualHead / 8][4], unsigned char* staging, int pitch) {
    const int index = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kUsualHead / 16; ++i)
      Padded<T>{staging, pitch}.store(0, 16 * i, as_a<T>(c[2 * i], c[2 * i + 1]));
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint4 x =
          *reinterpret_cast<const uint4*>(staging + (index / 8 + 4 * i) * pitch + index % 8 * 16);
      store_16(at + i * step,
               make_uint4(add_pairs<T>(old[i].x, x.x), add_pairs<T>(old[i].y, x.y),
                          add_pairs<T>(old[i].z, x.z), add_pairs<T>(old[i].w, x.w)),
               4 * i < left);
    }
    __syncwarp();
  }

 private:
  __device__ static uint4* place(unsigned char* kept, int i) {
    return reinterpret_cast<uint4*>(kept) + i * 32 + threadIdx.x % 32;
  }
};

/// Brings 16 rows of each of two tensors into the cache that all multiprocessors share, one a lane.
template <class T>
__device__ void prefetch_rows(const UsualTensor<T>& left, const UsualTensor<T>& right,
                              const AxisLines& axis, int line, int place) {
  const bool is_left = threadIdx.x % 32 < 16;
  const int own = place + threadIdx.x % 16;
  const T* const row = is_left ? left.data + (line * left.across + own * left.along)
                               : right.data + (line * right.across + own * right.along);
  if (line < axis.lines && own < axis.length) asm volatile("prefetch.global.L2 [%0];" ::"l"(row));
}

}  // namespace sape2::kernels::cuda
