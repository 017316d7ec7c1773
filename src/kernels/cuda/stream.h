#pragma once

#include "kernels/cuda/params.h"

#include <cuda.h>
#include <cuda_runtime.h>

/// Attention on Hopper: tiles come through the copy engine, products through warpgroups. For 16-bit
/// types, heads of up to 64 and vectors of up to 64 numbers in the distance form; the kernels of
/// attention_forward.cuh and attention_backward.cuh take everything else.
namespace sape2::kernels::cuda {

/// How tokens are cut into tiles that stand along columns (or, for keys with a direct bias, rows).
/// The direct form takes whole grid rows, or equal parts of long ones, each padded to a multiple of
/// 8: a column of the tile then always stands for the same column of the grid (within a part), and
/// eight neighbours share a grid row. Prefix tokens fill tiles of their own at the end. The other
/// forms take the tokens as they come, one grid row of all.
struct StreamColumns {
  int across, down;  // the grid
  int prefix;
  int parts, part_width;
  int rows_per_tile, tiles_per_part;
  int grid_tiles, tiles;

  struct Place {
    int part, first_row;
    bool in_grid;
  };
  __host__ __device__ Place place(int tile) const {
    if (tile >= grid_tiles) return {tile - grid_tiles, 0, false};
    const int part = parts == 1 ? 0 : tiles_per_part == 1 ? tile : tile / tiles_per_part;
    return {part, (tile - part * tiles_per_part) * rows_per_tile, true};
  }
  /// The token in a slot of a tile of `width` slots; −1 where there is none.
  __host__ __device__ int token(const Place& at, int slot, int width) const {
    if (!at.in_grid) return at.part * width + slot < prefix ? at.part * width + slot : -1;
    const int y = slot / part_width, x = at.part * part_width + slot - y * part_width;
    if (y >= rows_per_tile || at.first_row + y >= down || x >= across) return -1;
    return prefix + (at.first_row + y) * across + x;
  }
  /// Whether every slot of a tile has a token.
  __host__ __device__ bool full(const Place& at, int width) const {
    if (!at.in_grid) return (at.part + 1) * width <= prefix;
    return rows_per_tile * part_width == width && (at.part + 1) * part_width <= across &&
           at.first_row + rows_per_tile <= down;
  }
};

struct StreamForward {
  AttentionParams base;
  StreamColumns columns;
  CUtensorMap q;                     // 64 tokens
  CUtensorMap k, v;                  // a tile of the grid
  CUtensorMap k_prefix, v_prefix;    // a tile of prefix tokens
  CUtensorMap x, y;                  // 64 tokens' vectors
  CUtensorMap x_columns, y_columns;  // those of a tile of columns
};

struct StreamBackward {
  BackwardParams base;
  StreamColumns columns;
  CUtensorMap q, dout;             // 64 tokens: the queries' rows
  CUtensorMap k, v;                // a tile of the grid
  CUtensorMap k_prefix, v_prefix;  // a tile of prefix tokens
  CUtensorMap k_rows, v_rows;      // 64 tokens: the keys' rows, unless they are grid tiles
  CUtensorMap q_columns, dout_columns;
  CUtensorMap x, y;                  // 64 tokens' vectors
  CUtensorMap x_columns, y_columns;  // those of a tile of columns
};

/// Tiles' slots along columns. Distances have fewer: they need more registers.
template <BiasForm Form>
inline constexpr int kStreamColumns = kIsDistance<Form> ? 32 : 64;

/// Each returns false, having done nothing, where these kernels do not serve.
template <class T>
bool stream_forward(const AttentionParams& p, BiasForm form, cudaStream_t stream);
template <class T>
bool stream_backward(const BackwardParams& p, BiasForm form, cudaStream_t stream);

}  // namespace sape2::kernels::cuda
