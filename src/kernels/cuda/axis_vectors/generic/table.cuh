#pragma once

#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/axis_vectors/line.cuh"
#include "kernels/cuda/axis_vectors/params.h"
#include "kernels/cuda/axis_vectors/smem.h"
#include "kernels/cuda/common/element.cuh"
#include "kernels/cuda/common/tile.cuh"

/// Table values, and the backward pass from their gradients to what they were made of.
namespace sape2::kernels::cuda::axis_vectors::generic {

/// The reachable rows of one head's table.
struct TableView {
  const float* data;
  int rows, head_size;

  __device__ float at(int row, int column) const {
    return row < rows && column < head_size ? data[row * head_size + column] : 0.0F;
  }
  /// Two neighbours of a row, column even.
  __device__ float2 pair_at(int row, int column) const {
    const bool in_pairs = head_size % 2 == 0 && reinterpret_cast<std::uintptr_t>(data) % 8 == 0;
    if (!in_pairs) return make_float2(at(row, column), at(row, column + 1));
    const auto pair = *reinterpret_cast<const float2*>(data + min(row, rows - 1) * head_size +
                                                       min(column, head_size - 2));
    return row < rows && column < head_size ? pair : make_float2(0.0F, 0.0F);
  }
  /// B = tableᵀ: its columns are table rows row … row+7.
  __device__ FragmentB<float> by_rows(int row, int column) const {
    const Lane lane;
    return {{pair_at(row + lane.g, column + 2 * lane.t),
             pair_at(row + lane.g, column + 2 * lane.t + 8)}};
  }
  /// B = table: k runs along table rows row … row+15.
  __device__ FragmentB<float> by_columns(int row, int column) const {
    const Lane lane;
    const int r = row + 2 * lane.t, c = column + lane.g;
    return {{make_float2(at(r, c), at(r + 1, c)), make_float2(at(r + 8, c), at(r + 9, c))}};
  }
};

/// The reachable rows of a head's table as a product needs them: 16-bit types keep them, rounded,
/// in shared memory; float32 reads them where they are.
template <class T, int HeadSize>
struct TableTile {
  TableView view;
  Tile<T> tile;

  __host__ __device__ static int bytes(const AxisLines& axis) {
    return table_bytes<sizeof(T)>(HeadSize, axis);
  }
  /// `load`: false where the tile is there already.
  __device__ TableTile(const TableView& table, unsigned char* shared, bool load = true)
      : view(table), tile{shared, round_up(table.rows, 16), HeadSize} {
    if constexpr (!kIsFp32<T>) {
      if (!load) return;
      if (view.head_size == HeadSize && reinterpret_cast<std::uintptr_t>(view.data) % 16 == 0) {
        constexpr int kQuads = HeadSize / 4;
#pragma unroll 8
        for (int i = threadIdx.x; i < tile.rows * kQuads; i += kThreads) {
          const int row = i / kQuads;
          float4 quad = reinterpret_cast<const float4*>(view.data)[min(i, view.rows * kQuads - 1)];
          if (row >= view.rows) quad = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
          *reinterpret_cast<uint2*>(&tile.at(row, i % kQuads * 4)) =
              make_uint2(pack<T>(quad.x, quad.y), pack<T>(quad.z, quad.w));
        }
        return;
      }
      constexpr int kPairs = HeadSize / 2;
#pragma unroll 4
      for (int i = threadIdx.x; i < tile.rows * kPairs; i += kThreads) {
        const float2 pair = view.pair_at(i / kPairs, i % kPairs * 2);
        *reinterpret_cast<std::uint32_t*>(&tile.at(i / kPairs, i % kPairs * 2)) =
            pack<T>(pair.x, pair.y);
      }
    }
  }

  /// a·table of patches first … first+15, the first at place `own`, as values[row][place in the
  /// row's window].
  __device__ void values(const AxisLines& axis, int first, int own, const Tile<T>& a, float* values,
                         int pitch) const {
    const Lane lane;
    const int windows[2] = {window_first(axis, own + lane.g), window_first(axis, own + lane.g + 8)};
    FragmentA<T> fragments[HeadSize / 16];
#pragma unroll
    for (int k = 0; k < HeadSize / 16; ++k) fragments[k] = load_a(a, first, 16 * k);
    for (int row = 0; row < view.rows; row += 16) {
      float c[2][4] = {};
#pragma unroll
      for (int k = 0; k < HeadSize / 16; ++k) {
        FragmentB<T> b[2];
        if constexpr (kIsFp32<T>) {
          b[0] = view.by_rows(row, 16 * k);
          b[1] = view.by_rows(row + 8, 16 * k);
        } else {
          load_b_rows(b, tile, row, 16 * k);
        }
        mma(c[0], fragments[k], b[0]);
        mma(c[1], fragments[k], b[1]);
      }
#pragma unroll
      for (int n8 = 0; n8 < 2; ++n8)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const unsigned place = row + n8 * 8 + 2 * lane.t + e % 2 - windows[e / 2];
          if (place < unsigned(pitch)) values[(lane.g + e / 2 * 8) * pitch + place] = c[n8][e];
        }
    }
  }

  /// c += d · table, where d[row][place in the row's window] belongs to patches, the first at place
  /// `own`.
  __device__ void add_product(float (&c)[HeadSize / 8][4], const AxisLines& axis, int own,
                              const float* d, int pitch) const {
    for (int row = 0; row < view.rows; row += 16) {
      const auto fragment = make_a<T>(
          [&](int r, int k) { return window_at(d + r * pitch, axis, own + r, row + k, pitch); });
#pragma unroll
      for (int n8 = 0; n8 < HeadSize / 8; n8 += 2) {
        FragmentB<T> b[2];
        if constexpr (kIsFp32<T>) {
          b[0] = view.by_columns(row, n8 * 8);
          b[1] = view.by_columns(row, n8 * 8 + 8);
        } else {
          load_b_columns(b, tile, row, n8 * 8);
        }
        mma(c[n8], fragment, b[0]);
        mma(c[n8 + 1], fragment, b[1]);
      }
    }
  }
};

}  // namespace sape2::kernels::cuda::axis_vectors::generic
