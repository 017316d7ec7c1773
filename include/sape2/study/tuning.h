#pragma once

#include "sape2/train/recipe_fields.h"
#include "sape2/train/run_config.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Settings chosen for every encoding by itself, from one grid and with one budget for all. They
/// are judged on images held out of the training images; the test images are never read.
namespace sape2::study {

/// One value of the recipe, and what is tried for it.
struct TuningAxis {
  std::string key;  ///< as in recipe files
  std::vector<train::RecipeValue> values;
};

/// Reads `learning-rate=1e-3,5e-4`. Throws Error with one sentence for an unknown key, a value out
/// of bounds, or the same value twice.
TuningAxis parse_tuning_axis(std::string_view text);

/// One choice of values, an axis each: `{{"learning_rate", 5e-4}}`.
struct Setting {
  std::string key;
  train::RecipeValue value;

  bool operator==(const Setting&) const = default;
};
using Settings = std::vector<Setting>;

/// "learning_rate 0.0005, clip_norm 1"
std::string to_string(const Settings& settings);

/// The configuration with these values in its recipe, and a model that fits them.
train::RunConfig with_settings(train::RunConfig config, const Settings& settings);

/// The seed of all trials: seeds may be shared among machines, and all of them are to come to the
/// same choice.
inline constexpr std::uint64_t kTrialSeed = 0;

struct TuningPlan {
  std::vector<TuningAxis> axes;
  std::int64_t epochs = 1;    ///< of each trial; its schedule has that length
  std::int64_t held_out = 1;  ///< training images that the trials are judged on

  /// Every combination of the axes' values, the last axis changing fastest. Throws Error if they
  /// are more than 1,000.
  std::vector<Settings> grid() const;
};

/// One run of the tuning.
struct Trial {
  Settings settings;
  double score = 0;          ///< the task's main figure …
  double loss = 0;           ///< … and the loss on the held-out images, after the last epoch
  std::string failure = {};  ///< why it has no figures: it diverged
};

/// The trial with the highest accuracy; ties go to the lower loss, then to the first.
/// Nothing if all of them failed.
std::optional<std::size_t> best_trial(const std::vector<Trial>& trials);

/// Whether the first trials tie in accuracy, so that the loss or the order decided.
bool best_is_tied(const std::vector<Trial>& trials);

/// The axes on which a choice lies at the end of what was tried, so that a value beyond may be
/// better still; of axes with at least two numbers.
std::vector<std::string> axes_at_their_end(const TuningPlan& plan, const Settings& chosen);

/// Images to hold out: 5,000, or a tenth of fewer than 50,000 training images.
std::int64_t held_out_images(std::int64_t training_images);

/// The configuration of a trial, from that of the run that it serves.
train::RunConfig trial_config(const train::RunConfig& config, const Settings& settings,
                              const TuningPlan& plan);

}  // namespace sape2::study
