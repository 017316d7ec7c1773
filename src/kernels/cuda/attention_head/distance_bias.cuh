#pragma once

#include "kernels/cuda/arch/ldmatrix.cuh"
#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/attention_head/layout.h"
#include "kernels/cuda/attention_head/slots.cuh"
#include "kernels/cuda/common/element.cuh"
#include "kernels/cuda/host/params.h"

/// The distance form within a head: vectors shifted by a common one, which distances do not notice,
/// and rounded; |u − w|² = |u|² + |w|² − 2u·w, all three from the same tensor-core sums, so that
/// equal vectors are at distance exactly 0.
namespace sape2::kernels::cuda::head {

/// √x, 0 where x is, by rounding, less than 0; no number stays none.
__device__ inline float fast_root(float x) {
  float root;
  asm("{.reg .f32 t;\n max.NaN.f32 t, %1, 0f00000000;\n sqrt.approx.ftz.f32 %0, t;}\n"
      : "=f"(root)
      : "f"(x));
  return root;
}
/// 1/√x, 0 where x is 0 or, by rounding, less.
__device__ inline float fast_inverse_root(float x) {
  float inverse;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(x));
  return x < 1e-30F ? 0.0F : inverse;
}

/// The shift is the mean of a few patches spread over the grid; fewer than in
/// axis_vectors/center.cuh, since every warp finds it for itself.
inline constexpr int kCenterSamples = 4;

/// One set of a head's vectors, x in columns 0–15, y behind them.
template <class T>
struct CenteredVectors {
  static constexpr int kSecond = 16;
  Padded<T> tile;
  float* norms;  // (axis, slot)
  int slots;
  bool long_y;  // more than 16 rows

  __device__ CenteredVectors(const Layout& l, unsigned char* shared, int set)
      : tile{shared + l.centered + set * l.slots * l.centered_pitch, l.centered_pitch},
        norms(reinterpret_cast<float*>(shared + l.norms) + set * 2 * l.slots),
        slots(l.slots),
        long_y(l.centered_pitch > 5 * 16) {}

  /// This warp's rows; `line_of(slot)` finds the exact vectors of any slot, a warp's at the lines'
  /// pitch.
  template <class LineOf>
  __device__ void make(const Layout& l, const Geometry& g, int own_row, LineOf line_of) const {
    const int lane = threadIdx.x % 32, width = long_y ? 48 : 32;
    const int sampled = lane % kCenterSamples * (g.rows * g.cols) / kCenterSamples;
    const int sample = sampled / g.cols * l.row_width + sampled % g.cols;
    const float* const own_lines = line_of(own_row);
    for (int first = 0; first < width; first += 32) {  // two neighbours and every second row a lane
      const int column = first + lane % 16 * 2, axis = column >= kSecond;
      const int entry = column - axis * kSecond, left = (axis ? g.rows : g.cols) - entry;
      const int place = left > 0 ? entry + axis * l.row_width : 0, next = left > 1 ? place + 1 : 0;
      float shift = 0.0F, next_shift = 0.0F;
#pragma unroll
      for (int s = 0; s < kCenterSamples; ++s) {
        const float* const line = line_of(__shfl_sync(0xffffffffu, sample, s));
        shift += line[place];
        next_shift += line[next];
      }
      shift /= kCenterSamples;
      next_shift /= kCenterSamples;
      if (column >= width) continue;
#pragma unroll 4
      for (int row = lane / 16; row < 16; row += 2) {
        const int slot = own_row + row;
        const bool patch = slot < l.grid_slots && l.column_of(slot) < g.cols;
        const float* const line = own_lines + row * l.line_pitch;
        *reinterpret_cast<std::uint32_t*>(tile.row(slot) + column) =
            pack<T>(patch && left > 0 ? line[place] - shift : 0.0F,
                    patch && left > 1 ? line[next] - next_shift : 0.0F);
      }
    }
    __syncwarp();
    const Lane at;
#pragma unroll
    for (int axis = 0; axis < 2; ++axis) {
      float c[2][4] = {};
      products(c, axis, own_row, tile.b_rows(own_row));
      if (at.t == at.g / 2) {
        float* const to = norms + axis * slots + own_row + at.g;
        const float2 squared = diagonal(c, at);
        to[0] = squared.x;
        to[8] = squared.y;
      }
    }
  }

  /// c += u · w of the warp's rows with sixteen others along one axis; every product of two vectors
  /// is summed in this one order.
  __device__ void products(float (&c)[2][4], int axis, int own_row, std::uint32_t others) const {
    for (int i = axis; i < (axis && long_y ? 3 : axis + 1); ++i) {
      std::uint32_t b[4];
      FragmentA<T> a;
      ldmatrix_x4(a.r, tile.a(own_row) + 32 * i);
      ldmatrix_x4(b, others + 32 * i);
      mma_pair<T>(c[0], c[1], a, b);
    }
  }
};

/// The distances of the warp's rows from all others.
template <class T>
struct CenteredRows {
  FragmentA<T> own[2];
  float own_norms[2][2];
  std::uint32_t others;
  const float* norms;
  int own_row;

  __device__ void begin(const CenteredVectors<T>& centered, int row) {
    others = centered.tile.b_rows(0);
    norms = centered.norms + 2 * Lane().t;
    own_row = row;
#pragma unroll
    for (int axis = 0; axis < 2; ++axis) {
      ldmatrix_x4(own[axis].r, centered.tile.a(row) + 32 * axis);
#pragma unroll
      for (int half = 0; half < 2; ++half)
        own_norms[axis][half] = centered.norms[axis * centered.slots + row + Lane().g + 8 * half];
    }
  }

  /// Squared distances from sixteen slots along one axis; rounding may leave less than 0.
  __device__ void squared(float (&d)[2][4], const CenteredVectors<T>& centered, int axis,
                          int slot) const {
#pragma unroll
    for (int e = 0; e < 8; ++e) d[e / 4][e % 4] = 0.0F;
    const std::uint32_t there = others + slot * centered.tile.pitch;
    std::uint32_t b[4];
    ldmatrix_x4(b, there + 32 * axis);
    mma_pair<T>(d[0], d[1], own[axis], b);
    if (axis == 1 && centered.long_y) {
      FragmentA<T> a;
      ldmatrix_x4(a.r, centered.tile.a(own_row) + 64);
      ldmatrix_x4(b, there + 64);
      mma_pair<T>(d[0], d[1], a, b);
    }
#pragma unroll
    for (int n8 = 0; n8 < 2; ++n8) {
      const auto columns =
          *reinterpret_cast<const float2*>(norms + axis * centered.slots + slot + n8 * 8);
#pragma unroll
      for (int e = 0; e < 4; ++e)
        d[n8][e] = fmaf(-2.0F, d[n8][e], own_norms[axis][e / 2] + (e % 2 ? columns.y : columns.x));
    }
  }
};

}  // namespace sape2::kernels::cuda::head
