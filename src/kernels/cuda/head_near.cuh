#pragma once

#include "kernels/cuda/head_matrix.cuh"

/// The distance form within a head: vectors shifted by a common one, which distances do not notice,
/// and rounded; |u − w|² = |u|² + |w|² − 2u·w, all three from the same tensor-core sums, so that
/// equal vectors are at distance exactly 0.
namespace sape2::kernels::cuda {

__device__ inline float fast_root(float x) {
  float root;
  asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(root) : "f"(x));
  return root;
}
/// 1/√x, 0 at 0.
__device__ inline float fast_inverse_root(float x) {
  float inverse;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(x));
  return x < 1e-30F ? 0.0F : inverse;
}

/// The shift is the mean of a few patches spread over the grid.
inline constexpr int kHeadShiftSamples = 16;

/// One set of vectors, both axes beside each other.
template <class T>
struct HeadNear {
  Tile<T> tile;
  float* norms;  // (axis, slot)
  int slots, second;

  __device__ HeadNear(const HeadLayout& l, unsigned char* shared, int set)
      : tile{shared + l.near + set * Tile<T>::bytes(l.slots, l.near_width), l.slots, l.near_width},
        norms(reinterpret_cast<float*>(shared + l.norms) + set * 2 * l.slots),
        slots(l.slots),
        second(l.second_near) {}

  __device__ int first_column(int axis) const { return axis ? second : 0; }
  __device__ int end_column(int axis) const { return axis ? tile.columns : second; }

  /// This warp's rows; `line_of(slot)` finds the exact vectors of any slot.
  template <class LineOf>
  __device__ void make(const HeadLayout& l, const Geometry& g, const OwnSlots& own,
                       LineOf line_of) const {
    const int lane = threadIdx.x % 32;
    const int patches = g.rows * g.cols, samples = min(kHeadShiftSamples, patches);
    const int patch = min(lane, samples - 1) * (patches / samples);
    const int sample = patch / g.cols * l.row_width + patch % g.cols;
    for (int first = 0; first < tile.columns; first += 32) {
      const int column = first + lane, axis = column >= second, entry = column - axis * second;
      const bool used = column < tile.columns && entry < (axis ? g.rows : g.cols);
      const int place = used ? entry + axis * l.row_width : 0;
      float shift = 0.0F;
      for (int s = 0; s < samples; ++s)
        shift += line_of(__shfl_sync(0xffffffffu, sample, s))[place];
      shift /= samples;
      if (column >= tile.columns) continue;
#pragma unroll 4
      for (int row = 0; row < 16; ++row) {
        const int slot = own.first + row;
        const bool patch_here = slot < l.grid_slots && (slot & (l.row_width - 1)) < g.cols;
        tile.at(slot, column) = narrow<T>(used && patch_here ? line_of(slot)[place] - shift : 0.0F);
      }
    }
    __syncwarp();
    const Lane at;
#pragma unroll
    for (int axis = 0; axis < 2; ++axis) {
      float c[2][4] = {};
      for (int column = first_column(axis); column < end_column(axis); column += 16) {
        FragmentB<T> b[2];
        load_b_rows(b, tile, own.first, column);
        const auto a = load_a(tile, own.first, column);
        multiply_add(c[0], a, b[0]);
        multiply_add(c[1], a, b[1]);
      }
      if (at.t == at.g / 2) {
        float* const to = norms + axis * slots + own.first + at.g;
        to[0] = at.g % 2 ? c[0][1] : c[0][0];
        to[8] = at.g % 2 ? c[1][3] : c[1][2];
      }
    }
  }

  /// Squared distances of the warp's rows from sixteen slots along one axis.
  __device__ void squared(float (&d)[2][4], int axis, int own_row, int slot) const {
    const Lane lane;
#pragma unroll
    for (int piece = 0; piece < 2; ++piece)
#pragma unroll
      for (int e = 0; e < 4; ++e) d[piece][e] = 0.0F;
    for (int column = first_column(axis); column < end_column(axis); column += 16) {
      FragmentB<T> b[2];
      load_b_rows(b, tile, slot, column);
      const auto a = load_a(tile, own_row, column);
      multiply_add(d[0], a, b[0]);
      multiply_add(d[1], a, b[1]);
    }
    const float* const all = norms + axis * slots;
    const float rows[2] = {all[own_row + lane.g], all[own_row + lane.g + 8]};
#pragma unroll
    for (int piece = 0; piece < 2; ++piece) {
      const auto columns = *reinterpret_cast<const float2*>(all + slot + piece * 8 + 2 * lane.t);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        // Written so that a number that is none stays so.
        const float square =
            fmaf(-2.0F, d[piece][e], rows[e / 2] + (e % 2 ? columns.y : columns.x));
        d[piece][e] = square < 0.0F ? 0.0F : square;
      }
    }
  }
};

}  // namespace sape2::kernels::cuda
