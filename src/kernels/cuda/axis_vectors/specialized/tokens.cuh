#pragma once

#include "kernels/cuda/arch/ldmatrix.cuh"
#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/arch/tma.cuh"
#include "kernels/cuda/arch/wgmma.cuh"
#include "kernels/cuda/axis_vectors/params.h"
#include "kernels/cuda/axis_vectors/specialized/block.cuh"
#include "kernels/cuda/axis_vectors/specialized/kernels.h"
#include "kernels/cuda/common/element.cuh"
#include "kernels/cuda/common/tile.cuh"
#include "kernels/cuda/host/device.h"
#include "kernels/cuda/host/params.h"
#include "kernels/cuda/host/tensor_map.h"

/// Tokens of lines, where sizes are known to the compiler: on Hopper TMA brings them in
/// and takes gradients out, a box at a time; elsewhere all threads do, in code for later GPUs too,
/// for which the host makes no maps.
namespace sape2::kernels::cuda::axis_vectors::specialized {

/// All lines of an axis that a block works on at once.
struct TokenMaps {
  CUtensorMap q, k;
};

/// Boxes of `along` places of `across` lines: places along a line lie next to each other.
template <class T>
bool make_line_map(const ConstView& view, const Geometry& g, const AxisLines& axis, int along,
                   int across, CUtensorMap* map) {
  return make_tensor_map(
      {.data = static_cast<const T*>(view.data) + g.prefix * view.token_stride,
       .type = kMapType<T>,
       .sizes = {kHeadSize, axis.length, axis.lines, g.heads, g.batch_heads / g.heads},
       .strides = {axis.position_stride * view.token_stride, axis.line_stride * view.token_stride,
                   view.head_stride, view.image_stride},
       .box = {kHeadSize, along, across}},
      map);
}
/// Boxes of 16 places' vectors, `entries` of each, in the kernels' own layout; true where none are
/// needed.
template <class T>
bool make_line_vector_map(const void* vectors, const Params& p, const AxisLines& axis, int width,
                          int entries, CUtensorMap* map) {
  const Geometry& g = p.geometry;
  const std::int64_t head = std::int64_t(g.padded_tokens) * width;
  return !is_sm90a() ||
         make_tensor_map({.data = static_cast<const T*>(vectors) + std::int64_t(g.prefix) * width,
                          .type = kMapType<T>,
                          .sizes = {width, axis.length, axis.lines, g.batch_heads, 1},
                          .strides = {axis.position_stride * width, axis.line_stride * width, head,
                                      head * g.batch_heads},
                          .box = {entries, 16, 1}},
                         map);
}
/// Maps of q and k; true where none are needed.
template <class T, class Lines>
bool make_token_maps(const Params& p, const AxisLines& axis, TokenMaps* maps) {
  if (!is_sm90a()) return true;
  return make_line_map<T>(p.q, p.geometry, axis, Lines::kLong, Lines::kLines, &maps->q) &&
         make_line_map<T>(p.k, p.geometry, axis, Lines::kLong, Lines::kLines, &maps->k);
}

/// The map of 16 places of dq or dk, likewise.
template <class T>
bool make_row_map(const View& view, const Params& p, const AxisLines& axis, CUtensorMap* map) {
  return !is_sm90a() ||
         make_line_map<T>({view.data, view.image_stride, view.head_stride, view.token_stride},
                          p.geometry, axis, 16, 1, map);
}

/// Where a block's lines from `line` on begin, at `place`.
__device__ inline TmaCoord line_coord(const Block& block, int line, int place = 0) {
  return {0, place, line, block.head, block.image};
}

/// q, then k, of the lines a block works on, in each of `Buffers` buffers by turns.
template <class T, class Lines, int Buffers>
struct Tokens {
  static constexpr int kBufferBytes = 2 * Lines::kTileBytes;
  unsigned char* data;
  Mbarrier* arrived;  // Buffers of them
  const Params& p;
  const Block& block;
  const TokenMaps& maps;

  __device__ unsigned char* q(int buffer) const { return data + buffer * kBufferBytes; }
  __device__ unsigned char* k(int buffer) const { return q(buffer) + Lines::kTileBytes; }

  /// Before the first load; all threads call it.
  __device__ void prepare() const {
    if (threadIdx.x != 0) return;
    prefetch_tensormaps(maps.q, maps.k);
    for (int i = 0; i < Buffers; ++i) mbarrier_init(arrived + i);
    fence_barrier_init();
  }
  /// Starts bringing in the lines from `line` on; what belongs to no patch becomes zeros. All
  /// threads call it when nobody reads the buffer any more.
  __device__ void load(int line, int buffer) const {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    if (threadIdx.x != 0) return;
    mbarrier_expect_tx(arrived + buffer, kBufferBytes);
    tma_load(q(buffer), maps.q, line_coord(block, line), arrived + buffer);
    tma_load(k(buffer), maps.k, line_coord(block, line), arrived + buffer);
#else
    load_lines<Lines>(q(buffer), AxisTensor<const T>(p.q, p, block), block.axis, line);
    load_lines<Lines>(k(buffer), AxisTensor<const T>(p.k, p, block), block.axis, line);
    cp_async_commit();
#endif
  }
  /// Until load number `turn` (0, 1, 2, …) is done. The block has met since it was prepared.
  __device__ void wait(int turn) const {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    mbarrier_wait(arrived + turn % Buffers, turn / Buffers);
#else
    cp_async_wait<0>();
    __syncthreads();
#endif
  }
};

/// Adds a result to 16 rows of a gradient, from `place` of `line` on, by way of a tile in shared
/// memory, which is free again after tma_store_wait. Rows have one owner a launch, so sums have
/// one order. `begins`: there is nothing yet; on Hopper alone.
template <class T>
__device__ void add_to_rows(const CUtensorMap& map, [[maybe_unused]] const AxisTensor<T>& to,
                            const float (&c)[kHeadSize / 8][4], unsigned char* staging,
                            const Block& block, int line, int place, [[maybe_unused]] bool begins) {
  const LdmatrixOffsets<kHeadSize> offsets;
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#pragma unroll
  for (int i = 0; i < kHeadSize / 16; ++i)
    store_fragment<T>(next_columns<kHeadSize>(shared_address(staging) + offsets.a, i),
                      as_a<T>(c[2 * i], c[2 * i + 1]));
  fence_proxy_async();
  __syncwarp();
  if (elect_one()) {
    const TmaCoord at = line_coord(block, line, place);
    begins ? tma_store(map, at, staging) : tma_reduce_add(map, at, staging);
  }
#else
  const Lane lane;
#pragma unroll
  for (int i = 0; i < 2 * kHeadSize / 8; ++i) {
    const int n8 = i / 2, half = i % 2;
    *reinterpret_cast<std::uint32_t*>(staging + offsets.offset(lane.g + 8 * half, n8) +
                                      4 * lane.t) = pack<T>(c[n8][2 * half], c[n8][2 * half + 1]);
  }
  __syncwarp();
  const int index = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = index / 8 + 4 * i;
    if (line >= block.axis.lines || place + row >= block.axis.length) continue;
    auto* const at = reinterpret_cast<uint4*>(
        to.data + (line * to.across + (place + row) * to.along + index % 8 * 8));
    const uint4 x = *reinterpret_cast<const uint4*>(staging + offsets.offset(row, index % 8));
    const uint4 old = __ldcg(at);
    *at = make_uint4(add_pairs<T>(old.x, x.x), add_pairs<T>(old.y, x.y), add_pairs<T>(old.z, x.z),
                     add_pairs<T>(old.w, x.w));
  }
#endif
}

}  // namespace sape2::kernels::cuda::axis_vectors::specialized
