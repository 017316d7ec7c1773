#pragma once

#include "sape2/data/image.h"
#include "sape2/explain/picture.h"
#include "sape2/explain/view.h"
#include "sape2/ops/ops.h"
#include "sape2/study/prediction.h"

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace sape2::nn {
class ViT;
class LayerEncoding;
}  // namespace sape2::nn

namespace sape2::explain {

/// The soft positions that one patch sees. Along its row and its column; or, for an encoding that
/// counts in raster order, one for every patch.
struct SoftPositions {
  at::Tensor x;       ///< [cols]
  at::Tensor y;       ///< [rows]
  at::Tensor raster;  ///< [rows·cols]
};

/// What one unit of a bias adds to the logits; it may differ between layers and heads.
struct LogitFactor {
  double low = 1;
  double high = 1;

  bool is_one() const { return low == high; }
};

/// Gates and soft positions of a selection, measured over patches spread over the image. A bend is
/// the largest distance of positions from the straight line that fits them best, in patches: 0 for
/// plain offsets, whatever the image.
struct GateSummary {
  double mean = 0;       ///< of the gates
  double deviation = 0;  ///< of the gates, standard deviation
  double spacing = 0;    ///< of the positions, per patch
  double bend = 0;       ///< of the positions as shown: means where the selection is a mean
  Selection most_bent;   ///< the one layer and head of the selection that bends most …
  double most_bend = 0;  ///< … and by how much
};

/// All patches of a small grid, or some spread over a large one: what ranges and captions are
/// measured from.
std::vector<Patch> spread_patches(const ops::Grid& grid);

/// A model that has looked at one image: q and k of every layer are kept, and rows of bias, gates,
/// positions and attention are computed from them on demand, by the code that trains. Values are
/// float32 (float64 for a model of float64), on the CPU. Long work has interruption points
/// (sape2/base/interruption.h); several threads may ask at once.
class Inspection {
 public:
  Inspection(std::shared_ptr<nn::ViT> model, const data::Image& image, const InputSize& size = {},
             std::int64_t most_patches = kMostPatches);
  ~Inspection();
  Inspection(Inspection&&) noexcept;
  Inspection& operator=(Inspection&&) noexcept;

  const nn::ViT& model() const { return *model_; }
  const ops::Grid& grid() const { return grid_; }
  /// As the model saw it, RGB.
  const data::Image& image() const { return image_; }
  std::int64_t layers() const;
  std::int64_t heads() const;
  /// Of all classes, the most probable first.
  const std::vector<study::Prediction>& predictions() const { return predictions_; }
  /// The patches after the last layer, `[rows·cols, width]`.
  const at::Tensor& features() const { return features_; }

  /// Whether the model's encoding has such a thing; attention always.
  bool offers(What what) const;
  /// Throws Error with a sentence about the encoding where it has not.
  void require(What what) const;
  ScaleKind scale_kind(What what) const;
  /// Throws Error where the model has no such layer or head, or the grid no such patch.
  void check(const Selection& selection) const;
  void check(const Patch& patch) const;

  /// `[patches, rows·cols]`: from each given patch to every patch. Gates are NaN outside the own
  /// row and column; positions are distances of soft positions.
  at::Tensor rows(What what, const Selection& selection, const std::vector<Patch>& patches) const;

  /// The soft positions a patch sees, of an encoding that has them.
  SoftPositions positions(const Selection& selection, const Patch& patch) const;

  /// All patches against all, `[n, n]`; where there are more than `most` patches, means over square
  /// blocks of them. Works through the rows in pieces.
  at::Tensor matrix(What what, const Selection& selection, std::int64_t most) const;

  /// What one unit of the bias adds to the logits: the gain, divided by √d where the bias stands
  /// inside.
  LogitFactor logit_factor(const Selection& selection) const;
  /// Of an encoding that has gates.
  GateSummary gate_summary(const Selection& selection) const;
  /// Which share of all soft positions lies beyond the end of the model's tables, 0 … 1.
  double clamped_share() const;

  /// Memory that this holds, roughly.
  std::size_t bytes() const;

 private:
  struct Layer;

  std::vector<const Layer*> selected(const Selection& selection) const;
  at::Tensor layer_rows(const Layer& layer, What what, const std::vector<Patch>& patches) const;

  std::shared_ptr<nn::ViT> model_;
  data::Image image_;
  ops::Grid grid_;
  std::vector<Layer> layers_;
  at::Tensor features_;
  std::vector<study::Prediction> predictions_;
  std::vector<What> offered_;
  bool is_distance_ = false;
};

}  // namespace sape2::explain
