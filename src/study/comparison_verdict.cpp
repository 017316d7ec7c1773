#include "sape2/data/dataset.h"
#include "sape2/study/comparison_report.h"
#include "sape2/study/uncertainty.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace sape2::study {
namespace {

// Training that has seen fewer images than this (20 epochs of 50,000) is called short: curves of
// different encodings still cross.
constexpr double kShortTraining = 1e6;

struct Candidate {
  std::string name;
  std::vector<double> figures;  // of every run, in %
  double mean = 0;
};

std::vector<Candidate> ranked_rows(const Comparison& comparison) {
  std::vector<Candidate> rows;
  for (const RowResult& row : comparison.rows) {
    if (row.runs.empty()) continue;
    Candidate candidate{row.row.encoding.to_string(), {}};
    candidate.figures = percentages(row, figures_of(comparison).front().key);
    candidate.mean = spread_of(candidate.figures).mean;
    rows.push_back(std::move(candidate));
  }
  std::ranges::stable_sort(rows, std::ranges::greater{}, &Candidate::mean);
  return rows;
}

const data::DatasetInfo* known_dataset(const std::string& name) {
  const auto& all = data::known_datasets();
  const auto found = std::ranges::find(all, name, &data::DatasetInfo::name);
  return found == all.end() ? nullptr : &*found;
}

// 0: not known.
std::int64_t test_images(const train::DataConfig& data) {
  const data::DatasetInfo* info = known_dataset(data.name);
  const std::int64_t all = info == nullptr ? 0 : info->test_images;
  return data.test_images > 0 ? data.test_images : all;
}

std::int64_t images_seen(const train::RunConfig& config) {
  const data::DatasetInfo* info = known_dataset(config.data.name);
  const std::int64_t all = info == nullptr ? 0 : info->train_images;
  const std::int64_t images = config.data.train_images > 0 ? config.data.train_images : all;
  return images * config.recipe.epochs * config.recipe.passes;
}

// "a", "a and b", "a, b and c"
std::string listed(const std::vector<std::string>& words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += i + 1 == words.size() ? " and " : ", ";
    text += words[i];
  }
  return text;
}

class Verdict {
 public:
  explicit Verdict(const Comparison& comparison)
      : comparison_(comparison),
        config_(comparison.plan.common),
        rows_(ranked_rows(comparison)),
        images_(is_share_of_images() ? test_images(config_.data) : 0) {
    for (const Candidate& row : rows_) groups_.push_back(row.figures);
    seeds_known_ = std::ranges::any_of(groups_, [](const auto& group) { return group.size() > 1; });
  }

  std::string text() const {
    std::string text;
    if (rows_.size() >= 2) {
      text = comparison_.plan.baseline ? best() + against_baseline() : best() + lead() + reach();
      text += caveats();
    }
    text += failures() + ends_of_the_grid();
    return text.starts_with(' ') ? text.substr(1) : text;
  }

 private:
  // What the leader has to be ahead of a row by, in points.
  double margin(std::size_t row) const {
    const double by_images =
        images_ > 0 ? 100 * share_margin(rows_[0].mean / 100, rows_[row].mean / 100, images_) : 0;
    const double by_seeds = seeds_known_ ? mean_margin(groups_, 0, row) : 0;
    return std::hypot(by_images, by_seeds);
  }

  std::string best() const {
    return fmt::format("{} has the highest {}, {:.2f} %.", rows_[0].name,
                       is_share_of_images() ? "accuracy" : main_name(comparison_), rows_[0].mean);
  }

  // What chance does to a share of so many images is known; an IoU is no such share.
  bool is_share_of_images() const { return config_.model.task == nn::kClassification; }

  // For the main figure, then for the others that are compared.
  std::string against_baseline() const {
    std::string text;
    for (const train::FigureDefinition& figure : figures_of(comparison_)) {
      const bool main = &figure == &figures_of(comparison_).front();
      if (!main && !figure.compared) continue;
      text += against_baseline(figure.key, main ? "points" : "points of " + figure.name, main);
    }
    return text;
  }

  // Seed by seed: what differs from the baseline, and what cannot be told from it.
  std::string against_baseline(const std::string& key, const std::string& points,
                               bool explained) const {
    const std::string baseline = comparison_.plan.baseline->to_string();
    const auto differences = baseline_differences(comparison_, key);
    std::vector<std::string> clear, alike, single;
    for (std::size_t i = 0; i < differences.size(); ++i) {
      const RowResult& row = comparison_.rows[i];
      const std::string name = row.row.encoding.to_string();
      if (!differences[i]) {
        if (name != baseline && !row.runs.empty()) single.push_back(name + " (no seed)");
        continue;
      }
      const Difference& difference = differences[i]->difference;
      auto& group = !difference.interval ? single : difference.may_be_zero() ? alike : clear;
      group.push_back(fmt::format("{} {}", name, to_string(*differences[i])));
    }
    std::string text;
    if (!clear.empty()) {
      text += fmt::format(" Against {}, in {}: {}.", baseline, points, listed(clear));
    }
    if (!alike.empty()) {
      text += fmt::format(" Not distinguishable from {}{}: {}.", baseline,
                          explained ? "" : " in " + points, listed(alike));
    }
    if (!explained) return text;
    if (!clear.empty() || !alike.empty()) {
      text += " Intervals are of 95 %, from the differences seed by seed (paired t test)";
      text += images_ > 0 ? fmt::format(", for these {} test images.", grouped_digits(images_))
                          : std::string(", for these test images.");
    }
    if (!single.empty()) {
      text += fmt::format(
          " Fewer than two seeds in common with {}, so no interval: {}; --seeds 5 or more tells.",
          baseline, listed(single));
    }
    return text;
  }

  std::string failures() const {
    std::string text;
    for (const RowResult& row : comparison_.rows) {
      const std::string name = row.row.encoding.to_string();
      for (const FailedRun& run : row.failed) {
        text += fmt::format(" {} has no figure for seed {}: {}.", name, run.seed, run.reason);
      }
      const bool tried = !row.trials.empty() && row.chosen.empty();
      if (tried && std::ranges::none_of(row.trials, &std::string::empty, &Trial::failure)) {
        text += fmt::format(" {} diverged with every setting tried, so it was not trained.", name);
      }
    }
    return text;
  }

  std::string ends_of_the_grid() const {
    if (!comparison_.plan.tuning) return "";
    std::vector<std::string> names;
    for (const RowResult& row : comparison_.rows) {
      const auto keys = axes_at_their_end(*comparison_.plan.tuning, row.chosen);
      if (keys.empty()) continue;
      names.push_back(fmt::format("{} ({})", row.row.encoding.to_string(), to_string(row.chosen)));
    }
    if (names.empty()) return "";
    return fmt::format(
        " What was chosen lies at the end of the values tried for {}: values beyond may be better.",
        listed(names));
  }

  std::string lead() const {
    std::vector<std::string> behind, alike;
    for (std::size_t i = 1; i < rows_.size(); ++i) {
      const double points = rows_[0].mean - rows_[i].mean;
      const bool clear = points > margin(i);
      (clear ? behind : alike).push_back(fmt::format("{} ({:.2f})", rows_[i].name, points));
    }
    std::string text;
    if (!behind.empty()) text += " It is ahead of " + listed(behind) + " by that many points.";
    if (!alike.empty()) {
      text += fmt::format(" It cannot be told apart from {}: the difference is within chance.",
                          listed(alike));
    }
    return text;
  }

  std::string reach() const {
    double largest = 0;
    for (std::size_t i = 1; i < rows_.size(); ++i) largest = std::max(largest, margin(i));
    if (largest <= 0) return "";
    std::string cause = seeds_known_ ? "other seeds" : "";
    if (images_ > 0) {
      if (seeds_known_) cause += " or ";
      cause += fmt::format("other test images than these {}", grouped_digits(images_));
    }
    return fmt::format(" A difference of up to {:.1f} points may come from {} (95 % intervals).",
                       largest, cause);
  }

  std::string caveats() const {
    std::string text;
    if (!seeds_known_ && !comparison_.plan.baseline) {
      text +=
          " One run of each: what another seed would change is not measured; --seeds 3 or more "
          "tells.";
    }
    const auto seen = static_cast<double>(images_seen(config_));
    if (seen > 0 && seen < kShortTraining) {
      text += fmt::format(
          " This training is short ({} images seen by each): it shows that all of them "
          "learn, not which one is best in the end.",
          grouped_digits(images_seen(config_)));
    }
    return text;
  }

  const Comparison& comparison_;
  const train::RunConfig& config_;
  std::vector<Candidate> rows_;
  std::vector<std::vector<double>> groups_;  // their accuracies alone
  std::int64_t images_;
  bool seeds_known_ = false;
};

}  // namespace

std::string report_verdict(const Comparison& comparison) {
  return Verdict(comparison).text();
}

}  // namespace sape2::study
