#pragma once

#include "sape2/data/image.h"
#include "sape2/explain/view.h"
#include "sape2/infer/inspection.h"
#include "sape2/infer/pixel_logits.h"
#include "sape2/infer/prediction.h"
#include "sape2/nn/model_config.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace sape2::explain {

/// The soft positions that one patch sees. Along its row and its column; or, for an encoding that
/// counts in raster order, one for every patch. Empty: there are none of that kind.
struct SoftPositions {
  std::vector<float> x;       ///< (cols)
  std::vector<float> y;       ///< (rows)
  std::vector<float> raster;  ///< (rows·cols)
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
  double bend = 0;       ///< of the positions as shown: means if the selection is a mean
  Selection most_bent;   ///< the one layer and head of the selection that bends most …
  double most_bend = 0;  ///< … and by how much
};

/// All patches of a small grid, or some spread over a large one: what ranges and captions are
/// measured from.
std::vector<Patch> spread_patches(const infer::Grid& grid);

/// A model that has looked at one image, whatever computed it: rows of bias, gates, positions and
/// attention on demand, and what is measured from them. Needs no LibTorch; explain::Inspection uses
/// LibTorch, RuntimeLook does not. Long work has interruption points
/// (sape2/base/interruption.h); several threads may ask at once.
class Look {
 public:
  virtual ~Look() = default;

  const nn::ModelConfig& config() const { return config_; }
  const infer::Grid& grid() const { return grid_; }
  /// As the model saw it, RGB.
  const data::Image& image() const { return image_; }
  std::int64_t layers() const { return config_.vit.depth; }
  std::int64_t heads() const { return config_.vit.heads; }
  /// Of all classes, the most probable first; empty for a model for segmentation.
  const std::vector<infer::Prediction>& predictions() const { return predictions_; }
  /// What a model for segmentation sees; nothing for a classifier.
  const std::optional<infer::PixelLogits>& pixel_logits() const { return pixel_logits_; }
  /// The patches after the last layer, (patches, width).
  const std::vector<float>& features() const { return features_; }

  /// Whether the model's encoding has such a thing; attention always.
  bool offers(What what) const;
  /// Throws Error with a sentence about the encoding if it does not.
  void require(What what) const;
  ScaleKind scale_kind(What what) const;
  /// Throws Error if the model has no such layer or head, or the grid no such patch.
  void check(const Selection& selection) const;
  void check(const Patch& patch) const;

  /// (given patches, patches): from each given patch to every patch. Gates are NaN outside the own
  /// row and column; positions are distances of soft positions.
  std::vector<float> values(What what, const Selection& selection,
                            const std::vector<Patch>& patches) const;

  /// The soft positions a patch sees, of an encoding that has them.
  SoftPositions positions(const Selection& selection, const Patch& patch) const;

  /// What one unit of the bias adds to the logits: the gain, divided by √d if the bias is
  /// inside.
  LogitFactor logit_factor(const Selection& selection) const;
  /// Of an encoding that has gates.
  GateSummary gate_summary(const Selection& selection) const;
  /// Which share of all soft positions lies beyond the end of the model's tables, 0 … 1.
  double clamped_share() const;

  /// Memory that this holds, roughly.
  virtual std::size_t bytes() const;

 protected:
  Look(nn::ModelConfig config, data::Image image);
  Look(const Look&) = default;
  Look(Look&&) = default;
  Look& operator=(const Look&) = default;
  Look& operator=(Look&&) = default;

  /// What the model made of the image; once layer_rows() answers. Logits (classes), or those of
  /// patches. Throws infer::NotFinite if one is not a finite number.
  void saw(std::vector<float> features, std::span<const float> logits);

 private:
  /// One layer's attention as the patches of these numbers see it.
  virtual infer::AttentionRows layer_rows(std::int64_t layer,
                                          std::span<const std::int64_t> patches) const = 0;

  std::vector<std::int64_t> selected(const Selection& selection) const;
  infer::AttentionRows rows_of(std::int64_t layer, const std::vector<Patch>& patches) const;

  nn::ModelConfig config_;
  data::Image image_;
  infer::Grid grid_;
  std::vector<float> features_;
  std::vector<infer::Prediction> predictions_;
  std::optional<infer::PixelLogits> pixel_logits_;
  std::vector<What> offered_;
  bool is_distance_ = false;
};

}  // namespace sape2::explain
