#pragma once

#include "sape2/data/loader.h"
#include "sape2/train/batch_source.h"
#include "sape2/train/run_config.h"

namespace sape2::train {

/// The training images of a run in batches, augmented as its recipe says.
class LoaderSource : public BatchSource {
 public:
  LoaderSource(data::Dataset images, const RunConfig& config, data::BatchPart part = {});

  int64_t steps_per_epoch() const override { return loader_.steps(); }
  int64_t images_per_step() const override { return images_per_step_; }
  Batch batch(int64_t epoch, int64_t step) override;

 private:
  int64_t images_per_step_;
  data::BatchPart part_;
  data::Loader loader_;
  int64_t epoch_ = 0;
  int64_t next_step_ = 0;
};

/// How the loader serves a recipe.
data::LoaderOptions loader_options(const Recipe& recipe, uint64_t seed, int64_t images,
                                   c10::Device device);

}  // namespace sape2::train
