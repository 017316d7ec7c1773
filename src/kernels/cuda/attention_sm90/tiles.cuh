#pragma once

#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/arch/tma.cuh"
#include "kernels/cuda/arch/wgmma.cuh"
#include "kernels/cuda/attention_sm90/kernels.h"
#include "kernels/cuda/attention_sm90/tiling.h"
#include "kernels/cuda/common/online_softmax.cuh"
#include "kernels/cuda/common/tile.cuh"
#include "kernels/cuda/host/params.h"

/// What the kernels of attention_sm90 share: the block's place, and which columns of a tile are
/// tokens.
namespace sape2::kernels::cuda::sm90 {

inline constexpr int kTileBytes = kRowTile * 128;  // bytes of 64 rows

__device__ inline float log2_approx(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// A number that all lanes of a warp have, made known as such: what branches on it, or is made of
/// it, is then not worked out lane by lane.
__device__ inline int warp_uniform(int number) {
  return __shfl_sync(0xffffffffu, number, 0);
}

/// Which head and which tile of rows a block has.
struct BlockCoord {
  int image, head, row_tile;
  std::int64_t batch_head;

  __device__ BlockCoord(const Geometry& g, int row_tiles) {
    const unsigned index = blockIdx.x / unsigned(row_tiles);
    row_tile = blockIdx.x - index * row_tiles;
    image = index / unsigned(g.heads);
    head = index - image * g.heads;
    batch_head = index;
  }
  /// What it has next, without a division, which would be worked out lane by lane.
  __device__ BlockCoord next(const Geometry& g, const TileStride& step) const {
    BlockCoord to = *this;
    to.row_tile += step.row_tiles;
    to.head += step.heads;
    to.image += step.images;
    if (to.row_tile >= step.all_row_tiles) {
      to.row_tile -= step.all_row_tiles;
      ++to.head;
    }
    if (to.head >= g.heads) {
      to.head -= g.heads;
      ++to.image;
    }
    to.batch_head = to.image * g.heads + to.head;
    return to;
  }
  /// Or else there was nothing next.
  __device__ bool exists(const TileStride& step) const { return image < step.all_images; }
  /// Of 64 tokens' q, k or v from `first` on.
  __device__ TmaCoord tokens(int first) const { return {0, first, 0, head, image}; }
  /// Of axis vectors, entries from `entry` on.
  __device__ TmaCoord vectors(int first, int entry = 0) const {
    return {entry, first, 0, int(batch_head), 0};
  }
  /// Of float32 numbers, `each` of them a token.
  __device__ TmaCoord scalars(int first, int each) const {
    return {each * first, 0, 0, int(batch_head), 0};
  }
};

/// Where a tile of keys is copied from.
__device__ inline TmaCoord keys_coord(const BlockCoord& block, const KeyTiling& columns,
                                      const KeyTiling::Place& at) {
  if (!at.in_grid) return block.tokens(at.part * columns.width);
  return {0, at.part * columns.part_width, at.first_row, block.head, block.image};
}
__device__ inline int keys_bytes(const KeyTiling& columns, const KeyTiling::Place& at) {
  return (at.in_grid ? columns.part_width * columns.rows_per_tile : columns.width) * 128;
}

/// Slots that no copy fills must hold zeros: a weight of 0 does not silence what is no number.
__device__ inline void clear_shared(unsigned char* data, int bytes) {
  for (int i = threadIdx.x; i < bytes / 16; i += kThreads)
    reinterpret_cast<uint4*>(data)[i] = make_uint4(0, 0, 0, 0);
}

/// Puts 64 rows of a result, `factor` times, into a tile; each warp has its own sixteen.
template <class T, int N8>
__device__ void put_rows(const Tile<T>& tile, const float (&c)[N8][4], float factor) {
  const int row = threadIdx.x % kThreads / 32 * 16 + threadIdx.x % 16;
  const std::uint32_t at = shared_address(tile.chunk(row, threadIdx.x % 32 / 16));
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    float pair[2][4];
#pragma unroll
    for (int e = 0; e < 8; ++e) pair[e / 4][e % 4] = c[2 * k + e / 4][e % 4] * factor;
    store_fragment<T>(at ^ 32 * k, as_a<T>(pair[0], pair[1]));
  }
}

/// Writes 64 rows of a result by way of a tile that nobody needs any more, each warp its sixteen by
/// TMA: one lane calls start(first), which starts boxes of the rows from `first` on.
/// Ends with tma_store_wait.
template <class T, int N8, class Start>
__device__ void store_rows(const View& view, const Tile<T>& tile, const float (&c)[N8][4],
                           float factor, Start start) {
  if (view.data == nullptr) return;
  put_rows(tile, c, factor);
  fence_proxy_async();
  __syncwarp();
  const int first = warp_uniform(threadIdx.x % kThreads / 32) * 16;
  if (elect_one()) start(first);
}

/// Those of neighbouring tokens; `map`: of boxes of sixteen.
template <class T, int N8>
__device__ void store_tokens(const View& view, const CUtensorMap& map, const BlockCoord& block,
                             const Tile<T>& tile, const float (&c)[N8][4], float factor,
                             int first_token) {
  store_rows(view, tile, c, factor, [&](int first) {
    tma_store(map, block.tokens(first_token + first), tile.data + first * 128);
  });
}

/// Which of a lane's columns of a tile are tokens. Finding that out takes divisions, but a tile has
/// the tokens of the one above it, unless it reaches below the grid.
template <int N8>
struct ColumnMask {
  std::uint32_t tokens = 0;  // bit 2·n8 + e%2

  /// Puts `empty` where there is no token.
  __device__ void apply(float (&c)[N8][4], const KeyTiling& columns, const KeyTiling::Place& at,
                        float empty) {
    if (columns.whole || columns.full(at)) return;
    if (!at.in_grid || at.first_row == 0 || at.first_row + columns.rows_per_tile > columns.down)
      find(columns, at);
#pragma unroll
    for (int n8 = 0; n8 < N8; ++n8)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (!(tokens >> (2 * n8 + e % 2) & 1)) c[n8][e] = empty;
  }
  __device__ void find(const KeyTiling& columns, const KeyTiling::Place& at) {
    const int first = 2 * (threadIdx.x % 4);
    tokens = 0;
#pragma unroll 1
    for (int i = 0; i < 2 * N8; ++i)
      if (columns.token(at, i / 2 * 8 + first + i % 2) >= 0) tokens |= 1U << i;
  }
};

}  // namespace sape2::kernels::cuda::sm90
