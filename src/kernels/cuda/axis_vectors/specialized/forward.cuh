#pragma once

#include "kernels/cuda/arch/ldmatrix.cuh"
#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/arch/pdl.cuh"
#include "kernels/cuda/arch/tma.cuh"
#include "kernels/cuda/arch/wgmma.cuh"
#include "kernels/cuda/axis_vectors/line.cuh"
#include "kernels/cuda/axis_vectors/params.h"
#include "kernels/cuda/axis_vectors/specialized/block.cuh"
#include "kernels/cuda/axis_vectors/specialized/center.cuh"
#include "kernels/cuda/axis_vectors/specialized/kernels.h"
#include "kernels/cuda/axis_vectors/specialized/tokens.cuh"
#include "kernels/cuda/axis_vectors/specialized/vectors.cuh"
#include "kernels/cuda/common/tile.cuh"
#include "kernels/cuda/host/launch.h"

/// Stage 1 forward for specialized sizes, both axes in one grid where their lines are padded alike.
namespace sape2::kernels::cuda::axis_vectors::specialized {

struct ForwardKernelParams {
  Grid grid;
  int axis;  // the grid's first one
  Params stage;
  Outputs to;
  TokenMaps maps[2];  // by axis
  CUtensorMap vectors[2];
};

/// Blocks that a multiprocessor should run at once.
template <class Lines>
inline constexpr int kForwardBlocks = Lines::kLong == 64 ? 3 : 6;

/// The vectors of a warp's patches to memory, rounded and put in order by way of its own memory,
/// which is free again after tma_store_wait. `to`: of the head's first patch; the warp's first
/// is at `place` of `line`.
template <class Lines, class T>
__device__ void store_vectors([[maybe_unused]] const CUtensorMap& map, [[maybe_unused]] T* to,
                              const float (&vector)[Lines::kN8][4], const Block& block, int line,
                              int place, [[maybe_unused]] int width, unsigned char* own_memory) {
  constexpr int kN8 = Lines::kN8, kPitch = 2 * Lines::kLong;
  static_assert(16 * (kPitch + 16) + kSharedAlignment <= 16 * Lines::kValuePitch * 4);
  const int lane = threadIdx.x % 32;
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  // Swizzled as TMA has rows of 64 and 128 bytes.
  constexpr int kTurn = kPitch == 128 ? 8 : kPitch == 64 ? 4 : 1;
  unsigned char* const tile = aligned_shared(own_memory);
  const int row = lane % 16, turn = row * kPitch / 128 % kTurn;
  __syncwarp();
#pragma unroll
  for (int i = 0; i < kN8 / 2; ++i)
    store_fragment<T>(shared_address(tile) + row * kPitch + ((2 * i + lane / 16) ^ turn) * 16,
                      as_a<T>(vector[2 * i], vector[2 * i + 1]));
  fence_proxy_async();
  __syncwarp();
  if (elect_one()) tma_store(map, {0, place, line, int(block.batch_head), 0}, tile);
#else
  const Padded<T> padded{own_memory, kPitch + 16};
  const AxisLines& axis = block.axis;
  __syncwarp();
#pragma unroll
  for (int i = 0; i < kN8 / 2; ++i)
    padded.store(0, 16 * i, as_a<T>(vector[2 * i], vector[2 * i + 1]));
  __syncwarp();
#pragma unroll
  for (int sweep = 0; sweep < kN8 / 2; ++sweep) {
    const int row = (sweep * 32 + lane) / kN8, n8 = (sweep * 32 + lane) % kN8;
    const int patch = line * axis.line_stride + (place + row) * axis.position_stride;
    if (line < axis.lines && place + row < axis.length && n8 * 8 < width)
      *reinterpret_cast<uint4*>(to + (patch * width + n8 * 8)) =
          *reinterpret_cast<const uint4*>(padded.row(row) + n8 * 8);
  }
#endif
}

/// `Centered`: made ready for distances, the launch before having found the shift.
template <class T, class Lines, bool Centered>
__global__ void __launch_bounds__(Lines::kThreads, kForwardBlocks<Lines>)
    forward_kernel(const __grid_constant__ ForwardKernelParams params) {
  extern __shared__ __align__(kSharedAlignment) unsigned char smem[];
  const auto& g = params.stage.geometry;
  const int axis_index = params.axis + blockIdx.y;
  const Block block(params.stage, axis_index, params.grid);
  const AxisLines& axis = block.axis;
  const int width = params.to.widths[axis_index];
  const std::int64_t first = block.batch_head * g.padded_tokens;
  T* const vectors = static_cast<T*>(params.to.vectors[axis_index]) + first * width;
  [[maybe_unused]] float* const lengths = params.to.squared_lengths[axis_index] + first;
  Vectors<T, Lines> all(params.stage, block, params.maps[axis_index], smem);
  if constexpr (!Centered) {  // a call's first kernel
    block.be_known();
    pdl_wait();
    pdl_launch_dependents();
  }
  all.begin(axis_index);
  [[maybe_unused]] const Lane lane;

  for (int line = block.first_line; line < block.last_line; line += Lines::kLines) {
    float vector[Lines::kN8][4];
    all.make(vector, line);
    const int own_line = line + all.warp.line;
    if constexpr (Centered) {
      pdl_wait();
      subtract_center(vector, params.to.centers[axis_index] + block.batch_head * width, width);
      const float2 squares = squared_lengths<T>(vector);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int in_line = all.warp.own + lane.g + 8 * half;
        const int token = g.prefix + own_line * axis.line_stride + in_line * axis.position_stride;
        if (in_line < axis.length && own_line < axis.lines && lane.t == lane.g / 2)
          lengths[token] = half ? squares.y : squares.x;
      }
    }
    store_vectors<Lines>(params.vectors[axis_index], vectors + g.prefix * width, vector, block,
                         own_line, all.warp.own, width,
                         reinterpret_cast<unsigned char*>(all.own_values()));
  }
  if constexpr (Centered) {
    pdl_wait();  // blocks without lines have not yet
    pdl_launch_dependents();
  }
  if (block.first_line == 0) {
    clear_unused(g, vectors, width);
    if constexpr (Centered) clear_unused(g, lengths, 1);
  }
  tma_store_wait();
}

/// How a forward launch divides its work: both axes at once where they are padded alike, and no
/// more blocks than run at once on a large device, since each has to load the table.
template <class Lines>
struct Division {
  bool both;
  int blocks, lines;

  Division(const Params& p, int axis) {
    constexpr std::int64_t kProcessors = 132, kAtOnce = kProcessors * kForwardBlocks<Lines>;
    const auto groups = [](const AxisLines& a) {
      return (a.lines + Lines::kLines - 1) / Lines::kLines;
    };
    const auto& other = p.axes[1 - axis];
    // Gates of lines of up to 32 are rounded more finely (Gates), so on the backward pass.
    const bool rounded_alike = Lines::kLong <= 32 || other.length > 32;
    both = axis == 0 && other.length <= Lines::kLong && 2 * other.length > Lines::kLong &&
           rounded_alike;
    const int own = groups(p.axes[axis]), most = both ? std::max(own, groups(other)) : own;
    const std::int64_t all = p.geometry.batch_heads * (own + (both ? groups(other) : 0));
    const int steps = static_cast<int>(std::min<std::int64_t>(most, (all + kAtOnce - 1) / kAtOnce));
    blocks = (most + steps - 1) / steps;
    lines = steps * Lines::kLines;
  }
};

template <class T>
bool forward(const Params& p, const Outputs& to, cudaStream_t stream) {
  const bool centered = to.centers[0] != nullptr;
  const std::int64_t heads = p.geometry.batch_heads;
  TokenMaps maps[2]{};
  CUtensorMap vectors[2]{};
  for (int axis = 0; axis < 2;) {
    bool are_mapped = true;
    dispatch_lines(p.axes[axis], p.span, [&](auto lines) {
      using Lines = decltype(lines);
      constexpr int kBytes = Vectors<T, Lines>::kBytes;
      const Division<Lines> division(p, axis);
      const LaunchOptions options{.parts = division.both ? 2 : 1, .overlapping = true};
      for (int own = axis; own <= axis + division.both; ++own)
        are_mapped = are_mapped && make_token_maps<T, Lines>(p, p.axes[own], &maps[own]) &&
                     make_line_vector_map<T>(to.vectors[own], p, p.axes[own], to.widths[own],
                                             Lines::kLong, &vectors[own]);
      if (!are_mapped) return;
      if (centered)
        launch(center_kernel<T, Lines>, heads, options, Lines::kThreads, kBytes, stream,
               CenterParams{Grid(p, 1, Lines::kLines), axis, p, to, {maps[0], maps[1]}});
      launch(centered ? forward_kernel<T, Lines, true> : forward_kernel<T, Lines, false>,
             heads * division.blocks, options, Lines::kThreads, kBytes, stream,
             ForwardKernelParams{Grid(p, division.blocks, division.lines),
                                 axis,
                                 p,
                                 to,
                                 {maps[0], maps[1]},
                                 {vectors[0], vectors[1]}});
      axis += division.both ? 2 : 1;
    });
    if (!are_mapped) return false;
  }
  return true;
}

}  // namespace sape2::kernels::cuda::axis_vectors::specialized
