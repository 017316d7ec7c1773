#pragma once

#include "sape2/infer/session.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

/// What attention is made of, seen from a few chosen patches: the numbers of ops/inspect.h, without
/// LibTorch.
namespace sape2::infer {

/// The grid of patches, and how many prefix tokens (class token, registers) stand before it. Patch
/// (y, x) has the number y·cols + x and is token prefix + y·cols + x.
struct Grid {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t prefix = 0;

  std::int64_t patches() const { return rows * cols; }
  std::int64_t tokens() const { return prefix + patches(); }
};

/// What R chosen patches see along one axis; n is the grid's cols for x, its rows for y.
struct AxisRows {
  std::vector<float> gates;           ///< (heads, R, n): the gates of each one's own row or column
  std::vector<float> positions;       ///< (heads, R, n): the soft positions they add up to, clamped
  std::vector<std::uint8_t> clamped;  ///< (heads, R, n): 1 for those beyond the end of the table
  std::vector<float> bias;            ///< (heads, R, patches): this axis's part of the bias
};

/// One layer's attention as R chosen patches see it. What its encoding does not have stays empty.
struct AttentionRows {
  std::vector<float> attention;     ///< (heads, R, tokens): weights, a row sums to one
  std::vector<float> bias;          ///< (heads, R, patches): to every patch, before gain and scale
  std::vector<float> logit_factor;  ///< (heads): the bias times this is added to the logits
  AxisRows x, y;                    ///< its two parts, and what they come from
  std::vector<float> gates;         ///< (heads, R, tokens): CoPE's, over the raster order
  std::vector<float> positions;     ///< (heads, R, tokens): … and their sums
  std::vector<std::uint8_t> clamped;  ///< (heads, R, tokens): 1 for sums beyond the table's end
  bool is_distance = false;  ///< the bias is a distance: 0 or more, and 0 to the patch itself
};

/// A model that has looked at one image. q and k of every layer are kept, and rows are computed
/// from them on demand, so that one row of a large grid costs little. Several threads may ask at
/// once; the session is needed during construction only.
class Inspection {
 public:
  /// Runs one image through the session's model.
  Inspection(Session& session, const ImageBatch& image);
  ~Inspection();
  Inspection(Inspection&&) noexcept;
  Inspection& operator=(Inspection&&) noexcept;

  const Model& model() const;
  const Grid& grid() const;
  std::int64_t layers() const;
  std::int64_t heads() const;

  /// (classes); of a model for segmentation (rows, cols, classes).
  const std::vector<float>& logits() const;
  /// (patches, width): the patches after the last layer.
  const std::vector<float>& features() const;

  /// What the given patches see in a layer, counted from 0. Throws Error if there is no such
  /// layer or patch.
  AttentionRows rows(std::int64_t layer, std::span<const std::int64_t> patches) const;

  /// Memory that this holds, in bytes, roughly.
  std::size_t bytes() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sape2::infer
