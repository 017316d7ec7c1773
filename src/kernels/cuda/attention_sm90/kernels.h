#pragma once

#include "kernels/cuda/attention_sm80/kernels.h"
#include "kernels/cuda/attention_sm90/tiling.h"
#include "kernels/cuda/host/params.h"

#include <cuda.h>
#include <cuda_runtime.h>

/// Attention on sm_90a: tiles come by TMA, products are wgmma's. host/dispatch.cpp says which calls
/// these kernels serve; those of attention_sm80 take the others.
namespace sape2::kernels::cuda::sm90 {

struct ForwardParams {
  AttentionParams base;
  KeyTiling columns;
  CUtensorMap q;                   // 64 tokens
  CUtensorMap k, v;                // a tile of the grid
  CUtensorMap k_prefix, v_prefix;  // a tile of prefix tokens
  CUtensorMap x, y;                // 64 tokens' vectors
  CUtensorMap norm_x, norm_y;      // at distance, those vectors' squared lengths
  CUtensorMap out;                 // 16 tokens
  CUtensorMap x_eights, y_eights;  // of whole grids, 64 tokens' vectors, eight entries after eight
};

/// From one of a block's tiles of rows to its next, in the order of images, heads and tiles: how
/// many of each, and how many there are.
struct TileStride {
  int images, heads, row_tiles;
  int all_images, all_row_tiles;
};

struct BackwardParams {
  AttentionBackwardParams base;
  KeyTiling columns;
  SquareTiling squares;                      // of the direct form
  CUtensorMap q, dout;                       // 64 tokens
  CUtensorMap k_rows, v_rows;                // 64 tokens or, in the direct form, a square
  CUtensorMap k_rows_prefix, v_rows_prefix;  // there 64 prefix tokens
  CUtensorMap k, v;                          // a tile of the grid
  CUtensorMap k_prefix, v_prefix;            // a tile of prefix tokens
  CUtensorMap lse_delta;                     // 64 tokens' lse (base 2) and delta
  CUtensorMap x, y;                          // 64 tokens' vectors
  CUtensorMap norm_x, norm_y;                // at distance, those vectors' squared lengths
  CUtensorMap dq, dk, dv;  // 16 tokens; of dk and dv in the direct form two rows of a square
  CUtensorMap dk_prefix, dv_prefix;  // there 16 prefix tokens
  CUtensorMap short_x;               // 32 entries of x in rows as short, where kernels want those
  CUtensorMap dx, dy;                // of whole grids, 16 tokens' vectors
  CUtensorMap x_eight, y_eight;      // eight entries of 64 tokens' vectors
  TileStride step;                   // of the distance form
};

/// Tiles' slots along columns, as many as along rows.
inline constexpr int kTileColumns = 64;

/// Each returns false, having done nothing, if a tensor cannot be described to TMA.
template <class T>
bool forward(const AttentionParams& p, BiasForm form, cudaStream_t stream);
template <class T>
bool backward(const AttentionBackwardParams& p, BiasForm form, cudaStream_t stream,
              const BackwardContinuation& continuation);

}  // namespace sape2::kernels::cuda::sm90
