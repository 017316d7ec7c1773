#pragma once

#include "kernels/cuda/arch/ldmatrix.cuh"
#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/attention_head/layout.h"
#include "kernels/cuda/attention_head/plan.cuh"
#include "kernels/cuda/common/element.cuh"
#include "kernels/cuda/common/tile.cuh"
#include "kernels/cuda/host/params.h"

/// A whole head's tokens in shared memory, as `Tile`s of `Size` columns, and back.
namespace sape2::kernels::cuda::head {

/// `address`, one of LdmatrixOffsets' of the tile's first slots, at sixteen slots from `slot` on.
template <int Size>
__device__ std::uint32_t at_slots(std::uint32_t address, int slot) {
  return address + slot * kRowBytes<Size>;
}

/// Copies a warp's sixteen slots, a few 16-byte chunks a lane.
template <class T, int Size, GridKind Grid>
struct SlotCopies {
  static constexpr int kLanes = Size / 8, kSweeps = kLanes / 2, kStep = 32 / kLanes;
  int tokens[kSweeps];  // or −1
  int first, column;

  __device__ SlotCopies(const Plan& plan, const std::int16_t* all, int first_slot)
      : first(first_slot) {
    column = threadIdx.x % kLanes * 8;
#pragma unroll
    for (int sweep = 0; sweep < kSweeps; ++sweep)
      tokens[sweep] = token_of(plan, all, first, place(sweep));
  }
  /// Which of the sixteen.
  __device__ static int place(int sweep) {
    return sweep * kStep + threadIdx.x % 32 / kLanes;
  }
  /// Its row, from this lane's columns on; only to be read where there is a token. Of exact grids
  /// the compiler knows how far a lane's rows are apart.
  __device__ const T* row(const HeadView<const T>& from, int sweep) const {
    if constexpr (is_exact(Grid)) {
      constexpr int kSide = longest_line(Grid), kWidth = row_width(Grid);
      const int token = (first / kWidth + place(0) / kWidth) * kSide + place(0) % kWidth;
      const int after = sweep * kStep / kWidth * kSide + sweep * kStep % kWidth;
      return from.row(token) + column + after * from.token_stride;
    }
    return from.row(max(tokens[sweep], 0)) + column;
  }

  /// Has the rows come as far as the second-level cache.
  __device__ void fetch(const HeadView<const T>& from) const {
#pragma unroll
    for (int sweep = 0; sweep < kSweeps; ++sweep)
      if (tokens[sweep] >= 0) asm volatile("prefetch.global.L2 [%0];" ::"l"(row(from, sweep)));
  }

  __device__ void start(unsigned char* tile, const HeadView<const T>& from,
                        const Geometry& g) const {
    unsigned char* const rows = tile + first * kRowBytes<Size>;
    const bool in_head = column < g.head_size;
    if (g.aligned) {
#pragma unroll
      for (int sweep = 0; sweep < kSweeps; ++sweep)
        cp_async_16(rows + LdmatrixOffsets<Size>::offset(place(sweep), column / 8),
                    in_head ? row(from, sweep) : from.data, in_head && tokens[sweep] >= 0);
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
      reinterpret_cast<T*>(rows + LdmatrixOffsets<Size>::offset(place(i / 8), column / 8))[i % 8] =
          valid ? from.row(token)[c] : narrow<T>(0.0F);
    }
  }
};

/// Four neighbouring lanes have a pair each of four chunks; afterwards each has one whole chunk.
__device__ inline uint4 gather_chunk(const std::uint32_t (&pairs)[4]) {
  const bool odd = threadIdx.x & 1, high = threadIdx.x & 2;
  const auto trade = [](std::uint32_t pair, int step) {
    return __shfl_xor_sync(0xffffffffu, pair, step);
  };
  const std::uint32_t a = trade(odd ? pairs[0] : pairs[1], 1);
  const std::uint32_t b = trade(odd ? pairs[2] : pairs[3], 1);
  const std::uint32_t low[2] = {odd ? a : pairs[0], odd ? pairs[1] : a};
  const std::uint32_t up[2] = {odd ? b : pairs[2], odd ? pairs[3] : b};
  const std::uint32_t c = trade(high ? low[0] : up[0], 2), d = trade(high ? low[1] : up[1], 2);
  return high ? uint4{c, d, up[0], up[1]} : uint4{low[0], low[1], c, d};
}

/// A warp's sixteen rows of a result, times `factor`, to the tokens in its slots.
template <class T, int N8>
__device__ void store_slots(const HeadView<T>& to, const float (&c)[N8][4],
                            const std::int16_t* tokens, int own_row, const float (&factor)[2],
                            const Plan& plan) {
  const Lane lane;
  const auto& g = plan.geometry;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int token = token_of(plan, tokens, own_row, lane.g + 8 * half);
    T* const row = to.row(token);
    const auto pair = [&](int chunk) {
      return pack<T>(c[chunk][2 * half] * factor[half], c[chunk][2 * half + 1] * factor[half]);
    };
    if (!g.aligned || g.head_size != N8 * 8) {
      if (token >= 0) store_row(row, c, half, factor[half], g.head_size, false);
    } else if constexpr (N8 % 4 == 0) {
#pragma unroll
      for (int first = 0; first < N8; first += 4) {
        const auto chunk =
            gather_chunk({pair(first), pair(first + 1), pair(first + 2), pair(first + 3)});
        if (token >= 0) *reinterpret_cast<uint4*>(row + (first + lane.t) * 8) = chunk;
      }
    } else {
#pragma unroll
      for (int chunk = 0; chunk < N8; ++chunk)
        if (token >= 0)
          *reinterpret_cast<std::uint32_t*>(row + chunk * 8 + 2 * lane.t) = pair(chunk);
    }
  }
}

/// What a block needs to know to copy an image's tokens in, and results out.
template <class T, int Size, GridKind Grid>
struct HeadTokens {
  using Copies = SlotCopies<T, Size, Grid>;
  const ForwardParams& p;
  const Plan& plan;
  const Layout& l;
  const Geometry& g;
  unsigned char* const& shared;
  std::int16_t* const& tokens;
  const int &own_row, &head;
  const bool& works;  // whether the warp has slots

  __device__ Copies copies() const { return {plan, tokens, own_row}; }
  __device__ void store(const View& view, int image, const float (&result)[Size / 8][4],
                        float times) const {
    if (works)
      store_slots(head_of<T>(view, image, head), result, tokens, own_row, {times, times}, plan);
  }
};

}  // namespace sape2::kernels::cuda::head
