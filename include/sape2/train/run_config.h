#pragma once

#include "sape2/base/cpu.h"
#include "sape2/nn/model_config.h"
#include "sape2/train/recipe.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace sape2::train {

/// More threads than this are refused: they would only starve the machine.
inline constexpr int kMostThreads = base::kMostThreads;

/// What a model learns from and is tested on.
struct DataConfig {
  std::string name;          ///< as `sape2 data` knows it: `cifar10`, `shapes`, `folder:PATH`, …
  std::string root;          ///< folder to look in; empty: the usual places
  int64_t image_size = 0;    ///< 0: the data set's own
  int64_t train_images = 0;  ///< the first so many only; 0: all
  int64_t test_images = 0;
  /// Training images to keep out of the training and to test on in place of the test images, which
  /// are then never read: what settings are chosen by. 0: none.
  int64_t held_out = 0;

  bool operator==(const DataConfig&) const = default;
};

/// All that a run depends on: config.json in its folder. With the same configuration, number of
/// threads and version, a run on the CPU gives the same weights bit for bit.
struct RunConfig {
  nn::ModelConfig model;
  Recipe recipe;
  DataConfig data;
  uint64_t seed = 0;
  std::string init;            ///< model file the weights started from; empty: drawn from the seed
  std::string init_checksum;   ///< of its content (see io/checksum.h); empty: none, or not known
  std::string device = "cpu";  ///< `cpu`, `cuda`, `cuda:1`, …
  int threads = 0;             ///< 0: as the process is set

  /// Throws Error with one sentence if the values contradict each other.
  void validate() const;

  bool operator==(const RunConfig&) const = default;
};

/// The text of config.json, and back. Reading refuses unknown, missing and impossible values with a
/// sentence that begins with `source`.
std::string to_json(const RunConfig& config);
RunConfig run_config_from_json(std::string_view json, std::string_view source);

/// A short word that two configurations share only if they lead to the same weights: a checkpoint
/// carries it, to be told from those of other runs.
std::string fingerprint(const RunConfig& config);

}  // namespace sape2::train
