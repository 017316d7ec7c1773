#include "sape2/study/tuning.h"

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"
#include "sape2/train/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace sape2::study {
namespace {

constexpr std::int64_t kMostHeldOut = 5000;
constexpr std::int64_t kHeldOutShare = 10;  // one of so many, at most
constexpr std::size_t kMostSettings = 1000;

// What would change the images, the length or the outcome of the trials themselves is no setting.
constexpr std::array kNotTuned{"epochs", "evaluate_epochs", "checkpoint_steps", "log_steps"};

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (;;) {
    const auto end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::optional<double> number_of(const train::RecipeValue& value) {
  if (const auto* whole = std::get_if<std::int64_t>(&value)) return static_cast<double>(*whole);
  if (const auto* number = std::get_if<double>(&value)) return *number;
  return std::nullopt;
}

// Which of two trials is better, as a number that is larger for the better one.
std::pair<double, double> merit(const Trial& trial) {
  return {trial.score, -trial.loss};
}

}  // namespace

TuningAxis parse_tuning_axis(std::string_view text) {
  const auto equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    throw Error(fmt::format(
        "--tune {} says not what to try; give a value of the recipe and what to try for it, as in "
        "--tune learning-rate=1e-3,5e-4",
        in_quotes(text)));
  }
  std::string key(text.substr(0, equals));
  std::ranges::replace(key, '-', '_');
  const std::string where = "--tune: ";
  const train::RecipeField& field = train::recipe_field(key, where);
  if (std::ranges::find(kNotTuned, key) != kNotTuned.end()) {
    throw Error(fmt::format("{}{} is not tuned: every trial has the same budget", where, key));
  }
  TuningAxis axis{key, {}};
  for (const std::string& word : split(text.substr(equals + 1), ',')) {
    train::Recipe recipe;
    field.set_text(recipe, word, where);
    const train::RecipeValue value = field.get(recipe);
    if (std::ranges::find(axis.values, value) != axis.values.end()) {
      throw Error(fmt::format("{}{} is to be {} twice; name each value once", where, key,
                              train::to_string(value)));
    }
    axis.values.push_back(value);
  }
  return axis;
}

std::string to_string(const Settings& settings) {
  std::string text;
  for (const Setting& setting : settings) {
    text += (text.empty() ? "" : ", ") + setting.key + " " + train::to_string(setting.value);
  }
  return text;
}

train::RunConfig with_settings(train::RunConfig config, const Settings& settings) {
  for (const Setting& setting : settings) {
    train::recipe_field(setting.key, "").set(config.recipe, setting.value, "");
  }
  train::fit_to(config.model, config.recipe);
  return config;
}

std::vector<Settings> TuningPlan::grid() const {
  std::vector<Settings> grid{{}};
  for (const TuningAxis& axis : axes) {
    if (axis.values.empty()) throw Error("the tuning has no value for " + axis.key);
    if (grid.size() * axis.values.size() > kMostSettings) {
      throw Error(fmt::format(
          "the tuning has more than {} combinations of values for every encoding; try fewer",
          kMostSettings));
    }
    std::vector<Settings> longer;
    for (const Settings& begun : grid) {
      for (const train::RecipeValue& value : axis.values) {
        longer.push_back(begun);
        longer.back().push_back({axis.key, value});
      }
    }
    grid = std::move(longer);
  }
  return grid;
}

std::optional<std::size_t> best_trial(const std::vector<Trial>& trials) {
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < trials.size(); ++i) {
    if (!trials[i].failure.empty()) continue;
    if (!best || merit(trials[i]) > merit(trials[*best])) best = i;
  }
  return best;
}

bool best_is_tied(const std::vector<Trial>& trials) {
  const auto best = best_trial(trials);
  return best && std::ranges::count_if(trials, [&](const Trial& trial) {
                   return trial.failure.empty() && trial.score == trials[*best].score;
                 }) > 1;
}

std::vector<std::string> axes_at_their_end(const TuningPlan& plan, const Settings& chosen) {
  std::vector<std::string> keys;
  for (std::size_t i = 0; i < plan.axes.size() && i < chosen.size(); ++i) {
    std::vector<double> tried;
    for (const train::RecipeValue& value : plan.axes[i].values) {
      if (const auto number = number_of(value)) tried.push_back(*number);
    }
    const auto mine = number_of(chosen[i].value);
    if (tried.size() < 2 || !mine) continue;
    if (*mine == std::ranges::min(tried) || *mine == std::ranges::max(tried)) {
      keys.push_back(plan.axes[i].key);
    }
  }
  return keys;
}

std::int64_t held_out_images(std::int64_t training_images) {
  return std::clamp<std::int64_t>(training_images / kHeldOutShare, 1, kMostHeldOut);
}

train::RunConfig trial_config(const train::RunConfig& config, const Settings& settings,
                              const TuningPlan& plan) {
  train::RunConfig trial = with_settings(config, settings);
  trial.seed = kTrialSeed;
  trial.recipe.train_for(plan.epochs);
  trial.data.held_out = plan.held_out;
  trial.data.test_images = 0;  // of no concern here
  trial.validate();
  return trial;
}

}  // namespace sape2::study
