#pragma once

#include "kernels/cuda/head_plan.cuh"
#include "kernels/cuda/lane_places.cuh"

/// A whole head's tokens in shared memory, as `Tile`s of `Size` columns, and back.
namespace sape2::kernels::cuda {

/// `address`, one of LanePlaces' of the tile's first slots, at sixteen slots from `slot` on.
template <int Size>
__device__ std::uint32_t at_slots(std::uint32_t address, int slot) {
  return address + slot * kRowBytes<Size>;
}

/// Copies a warp's sixteen slots, a few 16-byte pieces a lane.
template <class T, int Size>
struct SlotCopies {
  static constexpr int kLanes = Size / 8, kSweeps = kLanes / 2;
  int tokens[kSweeps];
  int first, column;

  __device__ SlotCopies(const HeadPlan& plan, const std::int16_t* all, int first_slot)
      : first(first_slot) {
    const int lane = threadIdx.x % 32;
    column = lane % kLanes * 8;
#pragma unroll
    for (int sweep = 0; sweep < kSweeps; ++sweep) tokens[sweep] = token_of(plan, all, row(sweep));
  }
  __device__ int row(int sweep) const {
    return first + (sweep * 32 + threadIdx.x % 32) / kLanes;
  }

  __device__ void start(unsigned char* tile, const HeadView<const T>& from,
                        const Geometry& g) const {
    if (g.aligned) {
      const bool in_head = column < g.head_size;
      const T* const source = from.data + (in_head ? column : 0);
#pragma unroll
      for (int sweep = 0; sweep < kSweeps; ++sweep)
        copy_async_16(tile + LanePlaces<Size>::place(row(sweep), column / 8),
                      source + max(tokens[sweep], 0) * from.token_stride,
                      in_head && tokens[sweep] >= 0);
      return;
    }
#pragma unroll 1
    for (int i = 0; i < kSweeps * 8; ++i) {
      const int c = column + i % 8;
      int token = -1;
#pragma unroll
      for (int sweep = 0; sweep < kSweeps; ++sweep)
        if (sweep == i / 8) token = tokens[sweep];
      const bool valid = token >= 0 && c < g.head_size;
      reinterpret_cast<T*>(tile + LanePlaces<Size>::place(row(i / 8), column / 8))[i % 8] =
          valid ? from.row(token)[c] : narrow<T>(0.0F);
    }
  }
};

/// A warp's sixteen rows of a result, times `factor`, to the tokens in its slots.
template <class T, int Pieces>
__device__ void store_slots(const HeadView<T>& to, const float (&c)[Pieces][4],
                            const std::int16_t* tokens, int own_row, const float (&factor)[2],
                            const HeadPlan& plan) {
  const Lane lane;
  const auto& g = plan.geometry;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int token = token_of(plan, tokens, own_row + lane.g + 8 * half);
    if (token < 0) continue;
    T* const row = to.row(token);
    if (g.aligned && g.head_size == Pieces * 8) {
#pragma unroll
      for (int piece = 0; piece < Pieces; ++piece)
        *reinterpret_cast<std::uint32_t*>(row + piece * 8 + 2 * lane.t) =
            pack<T>(c[piece][2 * half] * factor[half], c[piece][2 * half + 1] * factor[half]);
    } else {
      store_row(row, c, half, factor[half], g.head_size, false);
    }
  }
}

}  // namespace sape2::kernels::cuda
