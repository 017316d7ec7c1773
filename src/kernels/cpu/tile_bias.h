#pragma once

namespace sape2::kernels {

/// The bias of one tile of (keys, queries), ready to be added to its scores. Only the first
/// `rows` keys, the patches, have one.
struct TileBias {
  enum class Kind { none, tile, direct };

  Kind kind = Kind::none;
  int rows = 0;
  float factor = 0.0F;          ///< logit = scale · score + factor · bias
  const float* tile = nullptr;  ///< (keys, kTile), for Kind::tile

  // For Kind::direct: the queries' vectors, and where the first key stands in the grid.
  const float* x = nullptr;  ///< (cols, kTile)
  const float* y = nullptr;  ///< (rows, kTile)
  int cols = 1;
  int first_key = 0;
};

}  // namespace sape2::kernels
