#pragma once

#include "sape2/train/run.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace CLI {
class App;
}

namespace sape2::cli {

/// The options that say what is trained on what and how, for every command that trains.
class RunOptions {
 public:
  /// Declares the flags of data, model, recipe (one for each of its values), seed and device.
  void declare(CLI::App& app);

  /// The data set to use where none is given.
  void prefer_data(const std::string& name) { data_.name = name; }

  /// What is used where no flag names a model or a recipe.
  void prefer(std::string model, std::string recipe);

  const std::string& model() const { return model_.empty() ? preferred_model_ : model_; }
  const std::string& recipe() const { return recipe_.empty() ? preferred_recipe_ : recipe_; }
  const std::string& data() const { return data_.name; }
  /// In place of the one that was given.
  void use_device(const std::string& device) { device_ = device; }
  const std::string& device() const { return device_; }
  std::uint64_t seed() const { return seed_; }

  /// Reads the data, or the training images alone, once all that can be checked without them is
  /// found to be right.
  train::RunData load_data() const;
  data::Dataset load_training_images() const;

  /// Runs start from the weights of this model file, which is checked here; empty: from the seed.
  /// What no flag says of the model is then as in the file.
  void start_from(const std::string& file);

  /// The encoding that a run gets where this one is asked for: itself or, where it is new to the
  /// trained model, in a form that starts without effect (see nn::retrofitted()).
  nn::EncodingSpec fitted(const nn::EncodingSpec& encoding) const;

  /// The complete configuration of a run on that data.
  train::RunConfig make_config(const data::Dataset& images, const std::string& encoding) const;

  /// What reports call the model: the preset, or the file that it starts from.
  std::string model_name() const;

  /// A name for the folder of a run, from what it trains.
  std::string default_folder(const train::RunConfig& config) const;

 private:
  void check() const;
  train::Recipe make_recipe() const;
  nn::ModelConfig base_model() const;

  train::DataConfig data_;
  std::string task_ = nn::kClassification;
  std::string model_;  // empty: not given
  std::optional<std::int64_t> patch_size_, depth_, width_, heads_, registers_;
  std::optional<double> mlp_ratio_, layer_scale_;
  std::string pooling_;
  std::string init_;  // absolute; empty: none
  std::string init_checksum_;
  std::optional<nn::ModelConfig> trained_;  // what init_ holds
  std::string recipe_;                      // empty: not given
  std::string preferred_model_ = "vit-compact", preferred_recipe_ = "quick";
  std::map<std::string, std::string> recipe_values_;  // by key, as written
  std::uint64_t seed_ = 0;
  std::string device_ = "cpu";
};

}  // namespace sape2::cli
