#pragma once

#include "kernels/cuda/stream_direct.cuh"

/// The direct form's bias where keys stand along rows.
namespace sape2::kernels::cuda {

/// The bias of a warp's 16 keys, whose eights each stand in one grid row, and a tile of queries:
/// products of what each key takes of a query's vectors with those vectors.
template <class T>
struct KeysBias {
  std::uint32_t x_address, y_address;  // of this lane's row in the first tile
  // Of A: the ratio where a key takes from, its high part and what that lacks.
  FragmentA<T> x[2];  // the first eight keys' place and the second's
  std::uint32_t y[2][2];
  bool in_two_parts;

  __device__ KeysBias(float ratio, const StreamEights& keys, int tile, const unsigned char* tile_x,
                      const unsigned char* tile_y) {
    const Lane lane;
    const InTwoParts<T> parts(ratio);
    in_two_parts = parts.low != 0.0F;
    int place[2];  // along the grid row, in pieces of eight
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const auto own = keys.place(tile, threadIdx.x / 32 * 2 + half);
      const bool patches = own.in_grid && own.row < keys.down;
      place[half] = patches ? own.column / 8 : 0;
      const int down = patches ? own.row % 8 : -1;  // among the eight of y
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        const float value = part == 0 ? parts.high : parts.low;
        x[part].r[half] = x[part].r[2 + half] = 0;
        x[part].r[3 * half] = patches ? on_diagonal<T>(value) : 0;
        y[part][half] =
            pack<T>(down == 2 * lane.t ? value : 0.0F, down == 2 * lane.t + 1 ? value : 0.0F);
      }
    }
    // Lanes 0 … 7 and 16 … 23 give queries' rows at the first eight keys' place, the others at the
    // second's; of y, 32 queries' rows.
    const int number = threadIdx.x % 32, query = number / 16 * 8 + number % 8;
    x_address = shared_address(tile_x) + query * 128 +
                ((number / 8 % 2 ? place[1] : place[0]) ^ query % 8) * 16;
    y_address = shared_address(tile_y) + number * 16;
  }
  __device__ void start(float (&c)[8][4], int offset_x, int offset_y) const {
    add<true>(c, offset_x, offset_y, x[0], y[0]);
    if (in_two_parts) add<false>(c, offset_x, offset_y, x[1], y[1]);
  }
  template <bool First>
  __device__ void add(float (&c)[8][4], int offset_x, int offset_y, const FragmentA<T>& by_x,
                      const std::uint32_t (&by_y)[2]) const {
    constexpr float kNothing[4] = {};
#pragma unroll
    for (int four = 0; four < 2; ++four) {
      std::uint32_t queries[4];
      load_pieces(queries, y_address + offset_y + four * 32 * 16);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if constexpr (First) {
          multiply_onto<T>(c[4 * four + i], by_y[0], by_y[1], queries[i], kNothing);
        } else {
          multiply_add_eight<T>(c[4 * four + i], by_y[0], by_y[1], queries[i]);
        }
      }
    }
#pragma unroll
    for (int piece = 0; piece < 8; piece += 2) {
      std::uint32_t queries[4];
      load_pieces(queries, x_address + offset_x + piece * 1024);
      multiply_add<T>(c[piece], by_x, {queries[0], queries[1]});
      multiply_add<T>(c[piece + 1], by_x, {queries[2], queries[3]});
    }
  }
};

/// The same by the warpgroup's products, where the ratio is one number of type T: what each key
/// takes of a query's short vectors stands in registers, and those vectors come as they lie in
/// shared memory.
template <class T>
struct ShortKeysBias {
  static constexpr int kSteps = 2;  // sixteens of x
  FragmentA<T> x[kSteps], y;

  __device__ ShortKeysBias(float ratio, const StreamEights& keys, int tile) {
    const Lane lane;
    const std::uint32_t diagonal = on_diagonal<T>(ratio);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const auto own = keys.place(tile, threadIdx.x / 32 * 2 + half);
      const bool patches = own.in_grid && own.row < keys.down;
      const int place = patches ? own.column / 8 : -1;  // along the grid row, in pieces of eight
      const int down = patches ? own.row % 8 : -1;      // among the eight of y
#pragma unroll
      for (int piece = 0; piece < 2 * kSteps; ++piece)
        x[piece / 2].r[piece % 2 * 2 + half] = place == piece ? diagonal : 0;
      y.r[half] = pack<T>(down == 2 * lane.t ? ratio : 0.0F, down == 2 * lane.t + 1 ? ratio : 0.0F);
      y.r[2 + half] = 0;
    }
  }
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  /// Starts c = the bias; by the matrix unit's names for the queries' vectors.
  __device__ void start(float (&c)[8][4], std::uint64_t queries_x, std::uint64_t queries_y) const {
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
      register_row_product<T>(c, x[step], queries_x + 2 * step, step > 0);
    register_row_product<T>(c, y, queries_y, 1);
  }
#endif
};

}  // namespace sape2::kernels::cuda
