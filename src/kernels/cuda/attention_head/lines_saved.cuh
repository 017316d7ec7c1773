#pragma once

#include "kernels/cuda/attention_head/layout.h"
#include "kernels/cuda/attention_head/lines.cuh"
#include "kernels/cuda/attention_head/plan.cuh"
#include "kernels/cuda/axis_vectors/params.h"
#include "kernels/cuda/common/element.cuh"

/// What forward leaves to backward of each line: for every entry the vector's, the slope where it
/// was interpolated, its position and its score, 16 bits each. Memory costs more than the digits
/// are worth: backward rounds all it makes of them to 16 bits, as the plain formula does before.
/// Forward uses the rounded vectors too, so that backward has the same weights.
namespace sape2::kernels::cuda::head {

/// Positions of table rows as multiples of 1/2048: lines of up to 16 patches reach 31 rows.
inline constexpr int kPositionBits = 11;

__device__ inline std::uint32_t fixed_position(float position, int origin) {
  constexpr float kUnits = 1 << kPositionBits;
  return __float2uint_rn(fmaf(position, kUnits, origin * kUnits));
}

template <class T>
__device__ float rounded_vector(float vector) {
  return widen(narrow<T>(within_range<T>(vector)));
}

/// Saved stage 1 of one head: (warps, chunks, 32 lanes) of 16 bytes. A lane's chunks are four rows
/// of `length` numbers: vector, slopes, positions, scores.
struct SavedStage1 {
  uint4* warp;  // this warp's
  int length;

  __device__ SavedStage1(uint4* saved, const Plan& plan, GridKind grid, std::int64_t batch_head,
                         int own_row)
      : warp(saved + (batch_head * plan.layout.warps + own_row / 16) * saved_chunks(grid) * 32),
        length(longest_line(grid)) {}

  /// Where one number is.
  __device__ std::uint16_t* at(int row, int m) const {
    const int place = row * length + m, lane = threadIdx.x % 32;
    return reinterpret_cast<std::uint16_t*>(warp + place / 8 * 32 + lane) + place % 8;
  }
};

/// A line in registers.
template <class T, int Length>
struct PackedLine {
  static constexpr int kWords = Length / 2;  // of each of four rows, so that these are the chunks
  static_assert(Length % 2 == 0);
  std::uint32_t words[4 * kWords];

  /// Only a patch's.
  __device__ void store(const SavedStage1& to) const {
    uint4* const lane = to.warp + threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kWords; ++i)
      lane[i * 32] = {words[4 * i], words[4 * i + 1], words[4 * i + 2], words[4 * i + 3]};
  }
  /// Zeros where there is no patch.
  __device__ void read(const SavedStage1& from, bool is_patch) {
    const uint4* const lane = from.warp + threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      const uint4 chunk = is_patch ? lane[i * 32] : uint4{};
      words[4 * i] = chunk.x;
      words[4 * i + 1] = chunk.y;
      words[4 * i + 2] = chunk.z;
      words[4 * i + 3] = chunk.w;
    }
  }

  __device__ float vector(int m) const {
    return half(0, m);
  }
  __device__ float slope(int m) const {
    return half(1, m);
  }
  __device__ float score(int m) const {
    return half(3, m);
  }
  __device__ TablePlace place(int m, int) const {
    constexpr std::uint32_t kFraction = (1u << kPositionBits) - 1;
    const std::uint32_t pair = words[2 * kWords + m / 2],
                        fixed = m % 2 ? pair >> 16 : pair & 0xffffu;
    const std::uint32_t above = (fixed & kFraction) << (23 - kPositionBits);
    return {static_cast<int>(fixed >> kPositionBits), __uint_as_float(0x3f800000u | above) - 1.0F};
  }

 private:
  __device__ float half(int row, int m) const {
    const float2 pair = unpack<T>(words[row * kWords + m / 2]);
    return m % 2 ? pair.y : pair.x;
  }
};

/// Has the warp's lines come as far as the second-level cache.
__device__ inline void fetch_lines(const SavedStage1& lines) {
  const int bytes = lines.length / 2 * 512;
  if (const int at = threadIdx.x % 32 * 128; at < bytes)
    asm volatile(
        "prefetch.global.L2 [%0];" ::"l"(reinterpret_cast<const unsigned char*>(lines.warp) + at));
}

/// Takes what a walk finds, entry by entry, and rounds the vectors. `to`: null, where nothing is
/// to be saved.
template <class T, int Length>
struct LineToSave {
  uint4* to;
  SavedStage1 places;
  float numbers[3][Length];
  std::uint32_t positions[Length];

  __device__ float put(int m, int, float position, int origin, float score, float slope,
                       float vector) {
    numbers[0][m] = rounded_vector<T>(vector);
    numbers[1][m] = slope;
    numbers[2][m] = score;
    positions[m] = fixed_position(position, origin);
    return numbers[0][m];
  }
  __device__ void finish(const LineWalk& walk, const axis_vectors::AxisLines&) const {
    if (to == nullptr || !walk.is_patch) return;
    PackedLine<T, Length> line;
    constexpr int kWords = Length / 2;
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      const auto pair = [&](const float(&of)[Length]) {
        return pack<T>(within_range<T>(of[2 * i]), within_range<T>(of[2 * i + 1]));
      };
      line.words[i] = pack<T>(numbers[0][2 * i], numbers[0][2 * i + 1]);
      line.words[kWords + i] = pair(numbers[1]);
      line.words[2 * kWords + i] = positions[2 * i] | positions[2 * i + 1] << 16;
      line.words[3 * kWords + i] = pair(numbers[2]);
    }
    line.store(places);
  }
};

/// The same number by number, for walks in any order.
template <class T>
struct EntriesToSave {
  uint4* to;
  SavedStage1 places;

  __device__ float put(int m, int, float position, int origin, float score, float slope,
                       float vector) const {
    if (to == nullptr) return vector;
    *reinterpret_cast<T*>(places.at(0, m)) = narrow<T>(rounded_vector<T>(vector));
    *reinterpret_cast<T*>(places.at(1, m)) = narrow<T>(within_range<T>(slope));
    *places.at(2, m) = static_cast<std::uint16_t>(fixed_position(position, origin));
    *reinterpret_cast<T*>(places.at(3, m)) = narrow<T>(within_range<T>(score));
    return vector;
  }
  /// Entries behind the line's end count for nothing, at a position that suits all others.
  __device__ void finish(const LineWalk& walk, const axis_vectors::AxisLines& axis) const {
    for (int m = walk.length; m < places.length && walk.is_patch; ++m)
      put(m, 0, axis.positions - 1, 0, 0.0F, 0.0F, 0.0F);
  }
};

/// Keeps as `Other` does, and rounds vectors where kernels for aligned rows would: forward and
/// backward may not find their rows aligned alike.
template <class T, class Other>
struct RoundingToo : Other {
  bool rounds;

  __device__ float put(int m, int set, float position, int origin, float score, float slope,
                       float vector) const {
    vector = Other::put(m, set, position, origin, score, slope, vector);
    return rounds ? rounded_vector<T>(vector) : vector;
  }
};

/// For calls that save nothing.
struct NothingToSave {
  __device__ float put(int, int, float, int, float, float, float vector) const { return vector; }
  __device__ void finish(const LineWalk&, const axis_vectors::AxisLines&) const {}
};

}  // namespace sape2::kernels::cuda::head
