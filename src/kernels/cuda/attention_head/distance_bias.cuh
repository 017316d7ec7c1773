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

/// The shift is the mean of a few patches spread over the grid.
inline constexpr int kHeadShiftSamples = 4;

/// One set of a head's vectors, x in columns 0–15, y behind them.
template <class T>
struct Near {
  static constexpr int kSecond = 16;
  Padded<T> tile;
  float* norms;  // (axis, slot)
  int slots;
  bool long_y;  // more than 16 rows

  __device__ Near(const Layout& l, unsigned char* shared, int set)
      : tile{shared + l.near + set * l.slots * l.near_pitch, l.near_pitch},
        norms(reinterpret_cast<float*>(shared + l.norms) + set * 2 * l.slots),
        slots(l.slots),
        long_y(l.near_pitch > 5 * 16) {}

  /// This warp's rows; `line_of(slot)` finds the exact vectors of any slot, a warp's at the lines'
  /// pitch.
  template <class LineOf>
  __device__ void make(const Layout& l, const Geometry& g, int own_row, LineOf line_of) const {
    const int lane = threadIdx.x % 32, width = long_y ? 48 : 32;
    const int sampled = lane % kHeadShiftSamples * (g.rows * g.cols) / kHeadShiftSamples;
    const int sample = sampled / g.cols * l.row_width + sampled % g.cols;
    const float* const own_lines = line_of(own_row);
    for (int first = 0; first < width; first += 32) {  // two neighbours and every second row a lane
      const int column = first + lane % 16 * 2, axis = column >= kSecond;
      const int entry = column - axis * kSecond, left = (axis ? g.rows : g.cols) - entry;
      const int place = left > 0 ? entry + axis * l.row_width : 0, next = left > 1 ? place + 1 : 0;
      float shift = 0.0F, next_shift = 0.0F;
#pragma unroll
      for (int s = 0; s < kHeadShiftSamples; ++s) {
        const float* const line = line_of(__shfl_sync(0xffffffffu, sample, s));
        shift += line[place];
        next_shift += line[next];
      }
      shift /= kHeadShiftSamples;
      next_shift /= kHeadShiftSamples;
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
        to[0] = at.g % 2 ? c[0][1] : c[0][0];
        to[8] = at.g % 2 ? c[1][3] : c[1][2];
      }
    }
  }

  /// c += u · w of the warp's rows with sixteen others along one axis; every product of two vectors
  /// is summed in this one order.
  __device__ void products(float (&c)[2][4], int axis, int own_row, std::uint32_t others) const {
    for (int i = axis; i < (axis && long_y ? 3 : axis + 1); ++i) {
      std::uint32_t b[4];
      FragmentA<T> a;
      load_matrices(a.r, tile.a(own_row) + 32 * i);
      load_matrices(b, others + 32 * i);
      multiply_add_pair<T>(c[0], c[1], a, b);
    }
  }
};

/// The distances of the warp's rows from all others.
template <class T>
struct NearRows {
  FragmentA<T> own[2];
  float own_norms[2][2];
  std::uint32_t others;
  const float* norms;
  int own_row;

  __device__ void begin(const Near<T>& near, int row) {
    others = near.tile.b_rows(0);
    norms = near.norms + 2 * Lane().t;
    own_row = row;
#pragma unroll
    for (int axis = 0; axis < 2; ++axis) {
      load_matrices(own[axis].r, near.tile.a(row) + 32 * axis);
#pragma unroll
      for (int half = 0; half < 2; ++half)
        own_norms[axis][half] = near.norms[axis * near.slots + row + Lane().g + 8 * half];
    }
  }

  /// Squared distances from sixteen slots along one axis; rounding may leave less than 0.
  __device__ void squared(float (&d)[2][4], const Near<T>& near, int axis, int slot) const {
#pragma unroll
    for (int e = 0; e < 8; ++e) d[e / 4][e % 4] = 0.0F;
    const std::uint32_t there = others + slot * near.tile.pitch;
    std::uint32_t b[4];
    load_matrices(b, there + 32 * axis);
    multiply_add_pair<T>(d[0], d[1], own[axis], b);
    if (axis == 1 && near.long_y) {
      FragmentA<T> a;
      load_matrices(a.r, near.tile.a(own_row) + 64);
      load_matrices(b, there + 64);
      multiply_add_pair<T>(d[0], d[1], a, b);
    }
#pragma unroll
    for (int piece = 0; piece < 2; ++piece) {
      const auto columns =
          *reinterpret_cast<const float2*>(norms + axis * near.slots + slot + piece * 8);
#pragma unroll
      for (int e = 0; e < 4; ++e)
        d[piece][e] =
            fmaf(-2.0F, d[piece][e], own_norms[axis][e / 2] + (e % 2 ? columns.y : columns.x));
    }
  }
};

}  // namespace sape2::kernels::cuda::head
