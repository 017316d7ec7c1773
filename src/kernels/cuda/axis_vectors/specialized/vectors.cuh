#pragma once

#include "kernels/cuda/arch/ldmatrix.cuh"
#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/arch/tma.cuh"
#include "kernels/cuda/axis_vectors/line.cuh"
#include "kernels/cuda/axis_vectors/params.h"
#include "kernels/cuda/axis_vectors/specialized/block.cuh"
#include "kernels/cuda/axis_vectors/specialized/kernels.h"
#include "kernels/cuda/axis_vectors/specialized/positions.cuh"
#include "kernels/cuda/axis_vectors/specialized/tokens.cuh"
#include "kernels/cuda/common/tile.cuh"

/// Axis vectors where sizes are known to the compiler.
namespace sape2::kernels::cuda::axis_vectors::specialized {

/// What a block makes vectors from: some lines of q and k at a time and a table in shared memory.
template <class T, class Lines>
struct Vectors {
  using Line = float[Lines::kN8][4];
  static constexpr int kValueBytes =
      round_up(Lines::kRows * Lines::kValuePitch * 4, kSharedAlignment);
  static constexpr int kBytes = kValueBytes + 2 * Lines::kTileBytes + Lines::kTableBytes;
  static constexpr int kRow = kRowBytes<kHeadSize>;

  const Params& p;
  const Block& block;
  unsigned char* shared;
  Tokens<T, Lines, 1> tokens;
  Warp<Lines> warp;
  Gates<Lines::kLong> gates;

  /// Reads nothing yet that another launch may have made.
  __device__ Vectors(const Params& params, const Block& own_block, const TokenMaps& maps,
                     unsigned char* own_shared)
      : p(params),
        block(own_block),
        shared(own_shared),
        // The last table values' row has a gap behind it, where their barrier has its place.
        tokens{shared + kValueBytes, reinterpret_cast<Mbarrier*>(shared + kValueBytes) - 1, p,
               block, maps} {
    tokens.prepare();
  }
  /// Starts loading the block's first lines, then brings the table along.
  __device__ void begin(int axis_index) {
    if (block.first_line < block.last_line) tokens.load(block.first_line, 0);
    const Table<T, Lines> rows(p, block, axis_index);
    gates = Gates<Lines::kLong>(p, block.head);
    rows.keep(table());
  }

  // Table values come first: what is no number reads beyond them.
  __device__ float* values() const { return reinterpret_cast<float*>(shared); }
  __device__ unsigned char* table() const { return tokens.k(0) + Lines::kTileBytes; }

  /// The warp's own part of them, free for others' use between one make and the next.
  __device__ float* own_values() const { return values() + warp.first_row * Lines::kValuePitch; }

  /// The vectors of a warp's patches in the lines from `line` on; zeros behind their ends, and for
  /// patches that do not exist. Starts loading the block's next lines as soon as nobody reads
  /// tokens any more.
  __device__ void make(Line& vector, int line) const {
    const AxisLines& axis = block.axis;
    const LdmatrixOffsets<kHeadSize> offsets;
    const Lane lane;
    __syncthreads();
    tokens.wait((line - block.first_line) / Lines::kLines);

    const std::uint32_t rows = warp.first_row * kRow;
    const std::uint32_t q = shared_address(tokens.q(0)), k = shared_address(tokens.k(0));
    {
      Line score, gate;
      make_scores<T>(score, q + rows + offsets.a, k + rows - warp.own * kRow + offsets.b_rows);
      make_positions<Lines>(vector, gate, score, gates, axis.length, warp.own);
    }
    tma_store_wait();  // of vectors that left from there
    __syncwarp();
    make_values<T, Lines::kWindow, Lines::kValuePitch>(
        own_values(), (p.first_from_q ? q : k) + rows + offsets.a,
        shared_address(table()) + Lines::window(warp.own) * kRow + offsets.b_rows);
    if (line + Lines::kLines < block.last_line) {
      __syncthreads();
      tokens.load(line + Lines::kLines, 0);
    }
    __syncwarp();
    const float shift = kFloorShift + Lines::origin(warp.own);
    const float* const lane_values = own_values() + lane.g * Lines::kValuePitch;
#pragma unroll
    for (int n8 = 0; n8 < Lines::kN8; ++n8)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const TablePlace at(vector[n8][e], shift, lane_values + e / 2 * 8 * Lines::kValuePitch);
        vector[n8][e] = fmaf(at.weight, at.slope, at.below);
      }
    if (axis.length < Lines::kLong) {
#pragma unroll
      for (int n8 = 0; n8 < Lines::kN8; ++n8)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (n8 * 8 + 2 * lane.t + e % 2 >= axis.length) vector[n8][e] = 0.0F;
    }
  }
};

}  // namespace sape2::kernels::cuda::axis_vectors::specialized
