#pragma once

#include "sape2/data/loader.h"
#include "sape2/train/batch_source.h"
#include "sape2/train/run_config.h"

#include <optional>

namespace sape2::train {

/// The training images of a run in batches, augmented as its recipe says.
class LoaderSource : public BatchSource {
 public:
  LoaderSource(data::Dataset images, const RunConfig& config);

  int64_t steps_per_epoch() const override { return loader_.steps(); }
  int64_t images_per_step() const override { return images_per_step_; }
  Batch batch(int64_t epoch, int64_t step) override;

 private:
  int64_t images_per_step_;
  data::Loader loader_;
  int64_t epoch_ = 0;
  int64_t next_step_ = 0;
};

/// How the loader serves a recipe.
data::LoaderOptions loader_options(const Recipe& recipe, uint64_t seed, int64_t images,
                                   c10::Device device);

/// Reads the images of one split, no more of them than the configuration says.
data::Dataset load_images(const DataConfig& config, data::Split split);

/// Fits a model's configuration to a data set: classes and their names, channels, normalisation,
/// and the image size; and to a recipe: dropout and stochastic depth.
void fit_to(nn::ModelConfig& model, const data::Dataset& dataset, const Recipe& recipe);

}  // namespace sape2::train
