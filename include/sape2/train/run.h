#pragma once

#include "sape2/data/dataset.h"
#include "sape2/train/trainer.h"

namespace sape2::train {

/// The two splits of a data set.
struct RunData {
  data::Dataset train;
  data::Dataset test;
};

/// The same data by names that hold from every folder: paths are made absolute.
DataConfig absolute_paths(DataConfig config);

/// The data of a run in the folder `run`. Older runs may hold a path that is relative to the folder
/// they were begun in: if nothing is there from here, it is looked for from every folder above the
/// run.
DataConfig data_of_run(DataConfig config, const std::filesystem::path& run);

/// Reads a split with no more images than the configuration says.
data::Dataset load_split(const DataConfig& config, data::Split split,
                         data::Target target = data::Target::labels);

/// The same data at the size that a model was trained at, where the data set has images of any
/// size and the configuration asks for none.
DataConfig at_size_of(const nn::ModelConfig& model, DataConfig config);

/// Both splits; with `held_out` images, the training split alone, cut in two by hold_out().
RunData load_run_data(const DataConfig& config, data::Target target = data::Target::labels);

/// So many images drawn out of a training split to test on, and the others to train on. The draw is
/// fixed: it depends on the two numbers of images alone, not on a run's seed.
RunData hold_out(const data::Dataset& train, int64_t images);

/// What all processes of a training must have in common, as JSON: the configuration but for where
/// it is computed, and what tells data apart.
std::string to_json_of_all(const RunConfig& config, const RunData& data);

/// Fits a model's configuration to a data set (classes and their names, channels, image size,
/// normalisation) and to a recipe (dropout and stochastic depth), or to a recipe alone.
void fit_to(nn::ModelConfig& model, const data::Dataset& dataset, const Recipe& recipe);
void fit_to(nn::ModelConfig& model, const Recipe& recipe);

/// Trains in the folder of a new run or of one that was begun; `data` is what its configuration
/// names. With a group, every process calls it. See Trainer.
RunSummary train_in(RunFolder folder, RunData data, Observer& observer,
                    const StopRequested& stop = {}, dist::Group* group = nullptr);

}  // namespace sape2::train
