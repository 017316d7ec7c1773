#pragma once

#include "sape2/data/dataset.h"
#include "sape2/train/trainer.h"

namespace sape2::train {

/// The two splits of a data set.
struct RunData {
  data::Dataset train;
  data::Dataset test;
};

/// Reads a split, or both, with no more images than the configuration says.
data::Dataset load_split(const DataConfig& config, data::Split split);
RunData load_run_data(const DataConfig& config);

/// Fits a model's configuration to a data set (classes and their names, channels, image size,
/// normalisation) and to a recipe (dropout and stochastic depth).
void fit_to(nn::ModelConfig& model, const data::Dataset& dataset, const Recipe& recipe);

/// Trains in the folder of a new run or of one that was begun; `data` is what its configuration
/// names. See Trainer::run().
RunSummary train_in(RunFolder folder, RunData data, Observer& observer,
                    const StopRequested& stop = {});

}  // namespace sape2::train
