#pragma once

#include "kernels/cuda/stage_one_usual_positions.cuh"

/// Stage 1 forward for usual calls, both axes in one grid where their lines are padded alike.
namespace sape2::kernels::cuda {

struct UsualForward {
  StageOneForward all;
  int axis;         // the grid's first one
  unsigned blocks;  // that a head and axis get
  int lines;        // of a block
};

/// Blocks that a multiprocessor should run at once.
template <class Lines>
inline constexpr int kUsualForwardBlocks = Lines::kLong == 64 ? 3 : 6;

/// One of this lane's two rows of 16-bit vectors to memory. Lanes exchange pairs, so that each
/// writes eight bytes and four of them a whole sector.
template <class T, int Pieces>
__device__ void store_usual_vector(T* to, const float (&line)[Pieces][4], int half, int width,
                                   bool valid) {
  const Lane lane;
  const bool odd = lane.t % 2;
#pragma unroll
  for (int piece = 0; piece < Pieces; piece += 2) {
    const auto left = pack<T>(line[piece][2 * half], line[piece][2 * half + 1]);
    const auto right = pack<T>(line[piece + 1][2 * half], line[piece + 1][2 * half + 1]);
    const auto other = __shfl_xor_sync(0xffffffffu, odd ? left : right, 1);
    if (valid && piece * 8 < width)
      *reinterpret_cast<uint2*>(to + piece * 8 + (odd ? 6 : 0) + 2 * lane.t) =
          odd ? make_uint2(other, right) : make_uint2(left, other);
  }
}
template <int Pieces>
__device__ void store_usual_vector(float* to, const float (&line)[Pieces][4], int half, int width,
                                   bool valid) {
  const Lane lane;
#pragma unroll
  for (int piece = 0; piece < Pieces; ++piece)
    if (valid && piece * 8 < width)
      *reinterpret_cast<float2*>(to + piece * 8 + 2 * lane.t) =
          make_float2(line[piece][2 * half], line[piece][2 * half + 1]);
}

template <class T, class Lines>
__global__ void __launch_bounds__(Lines::kThreads, kUsualForwardBlocks<Lines>)
    usual_forward_kernel(const __grid_constant__ UsualForward params) {
  constexpr int kPieces = Lines::kPieces;
  // Table values come first: what is no number reads beyond them.
  constexpr int kValueBytes = Lines::kRows * Lines::kValuePitch * 4;
  extern __shared__ __align__(128) unsigned char usual_shared[];
  unsigned char* const q = usual_shared + kValueBytes;
  unsigned char* const k = q + Lines::kTileBytes;
  unsigned char* const table = k + Lines::kTileBytes;

  wait_for_previous();
  let_next_begin();  // a call's first kernel
  const StageOneParams& p = params.all.stage;
  const auto& g = p.geometry;
  const int axis_index = params.axis + blockIdx.y;
  const UsualBlock block(p, axis_index, params.blocks, params.lines);
  const AxisLines& axis = block.axis;
  const auto& to = params.all.vectors;
  const int width = to.widths[axis_index];
  const std::int64_t vectors = to.place(g, axis, axis_index, 0, block.batch_head, 0);
  T* const narrow_vectors = static_cast<T*>(to.axes[axis_index]) + vectors;
  float* const wide_vectors = static_cast<float*>(to.axes[axis_index]) + vectors;

  const UsualTensor<const T> all_q(p.q, p, block), all_k(p.k, p, block);
  const LanePlaces<kUsualHead> places;
  const UsualWarp<Lines> warp;
  const Lane lane;
  const UsualGates<Lines::kLong> gates(p, block.head);
  float* const values =
      reinterpret_cast<float*>(usual_shared) + warp.first_row * Lines::kValuePitch;
  const std::uint32_t rows = warp.first_row * kRowBytes<kUsualHead>;
  const std::uint32_t queries = shared_address(q) + rows + places.a;
  const std::uint32_t keys =
      shared_address(k) + rows - warp.own * kRowBytes<kUsualHead> + places.b_rows;
  const std::uint32_t source = shared_address(p.first_from_q ? q : k) + rows + places.a;
  const std::uint32_t window =
      shared_address(table) + Lines::window(warp.own) * kRowBytes<kUsualHead> + places.b_rows;
  const float shift = kFloorShift + Lines::origin(warp.own);

  for (int line = block.first_line; line < block.last_line; line += Lines::kLines) {
    if (line > block.first_line) __syncthreads();
    load_lines<Lines>(q, all_q, axis, line);
    load_lines<Lines>(k, all_k, axis, line);
    commit_copies();
    if (line == block.first_line) load_usual_table<T, Lines>(table, p, block, axis_index);
    wait_for_copies<0>();
    __syncthreads();

    float vector[kPieces][4];
    {
      float score[kPieces][4], gate[kPieces][4];
      usual_scores<T>(score, queries, keys);
      usual_positions<Lines>(vector, gate, score, gates, axis.length, warp.own);
    }
    usual_values<T, Lines>(values, source, window);
    __syncwarp();
    const float* const own_values = values + lane.g * Lines::kValuePitch;
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const UsualPlace at(vector[piece][e], shift, own_values + e / 2 * 8 * Lines::kValuePitch);
        vector[piece][e] = fmaf(at.weight, at.slope, at.below);
      }
    if (axis.length < Lines::kLong) {
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (piece * 8 + 2 * lane.t + e % 2 >= axis.length) vector[piece][e] = 0.0F;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int in_line = warp.own + lane.g + 8 * half, own_line = line + warp.line;
      const bool valid = in_line < axis.length && own_line < axis.lines;
      const int at =
          (g.prefix + own_line * axis.line_stride + in_line * axis.position_stride) * width;
      if (to.wide) {
        store_usual_vector(wide_vectors + at, vector, half, width, valid);
      } else {
        store_usual_vector(narrow_vectors + at, vector, half, width, valid);
      }
    }
  }
  if (block.first_line == 0) {
    if (to.wide) {
      clear_unused(g, wide_vectors, width);
    } else {
      clear_unused(g, narrow_vectors, width);
    }
  }
}

template <class T>
bool usual_stage_one_forward(const StageOneForward& p, cudaStream_t stream) {
  if (p.vectors.plain || !is_usual(p.stage)) return false;
  const auto& axes = p.stage.axes;
  // Both axes at once where they are padded alike. No more blocks than run at once on a large
  // device, since each has to load the table.
  constexpr std::int64_t kProcessors = 132;
  const std::int64_t heads = p.stage.geometry.batch_heads;
  for (int axis = 0; axis < 2;) {
    dispatch_usual_lines(axes[axis], p.stage.span, [&](auto lines) {
      using Lines = decltype(lines);
      const auto groups = [](const AxisLines& a) {
        return (a.lines + Lines::kLines - 1) / Lines::kLines;
      };
      const auto& other = axes[1 - axis];
      const bool both =
          axis == 0 && other.length <= Lines::kLong && 2 * other.length > Lines::kLong;
      const int most = both ? max(groups(axes[0]), groups(axes[1])) : groups(axes[axis]);
      const std::int64_t all = heads * (groups(axes[axis]) + (both ? groups(other) : 0));
      const std::int64_t at_once = kProcessors * kUsualForwardBlocks<Lines>;
      const int of_block =
          static_cast<int>(std::min<std::int64_t>(most, (all + at_once - 1) / at_once));
      const int blocks = (most + of_block - 1) / of_block;
      launch(usual_forward_kernel<T, Lines>, heads * blocks,
             {.parts = both ? 2 : 1, .overlapping = true}, Lines::kThreads,
             Lines::kRows * Lines::kValuePitch * 4 + 2 * Lines::kTileBytes + Lines::kTableBytes,
             stream,
             UsualForward{p, axis, static_cast<unsigned>(blocks), of_block * Lines::kLines});
      axis += both ? 2 : 1;
    });
  }
  return true;
}

}  // namespace sape2::kernels::cuda
