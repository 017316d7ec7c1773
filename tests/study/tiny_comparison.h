#pragma once

#include "sape2/study/comparison.h"

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace sape2::study::test {

/// Two encodings, two seeds, a second or two of training.
inline ComparisonPlan tiny_plan() {
  ComparisonPlan plan;
  plan.rows = listed_rows("ape,sape2-rel-k[gates=open]");
  plan.common.model.vit.depth = 1;
  plan.common.model.vit.width = 16;
  plan.common.model.vit.heads = 2;
  plan.common.data = {.name = "shapes", .train_images = 64, .test_images = 32};
  plan.common.recipe.epochs = 2;
  plan.common.recipe.warmup_epochs = 1;
  plan.common.recipe.batch_size = 16;
  plan.common.recipe.log_steps = 2;
  plan.seeds = {0, 1};
  plan.recipe = "tiny";
  plan.model = "tiny";
  return plan;
}

/// Decay that outgrows every weight: no number after a few steps.
inline train::Recipe diverging_recipe() {
  train::Recipe recipe = tiny_plan().common.recipe;
  recipe.epochs = 8;
  recipe.warmup_epochs = 0;
  recipe.learning_rate = 10;
  recipe.weight_decay = 10;
  return recipe;
}

inline Comparison compare(ComparisonPlan plan, const std::filesystem::path& folder,
                          ComparisonObserver& observer, const train::StopRequested& stop = {}) {
  const data::Dataset training = train::load_split(plan.common.data, data::Split::train);
  train::fit_to(plan.common.model, training, plan.common.recipe);
  return run_comparison(plan, training, folder, observer, stop);
}

class RunCounter : public ComparisonObserver {
 public:
  void run_begins(const std::string& what, std::int64_t, std::int64_t total,
                  bool has_result) override {
    total_ = total;
    reused_ += has_result;
    begun_.push_back(what);
  }
  void run_failed(const std::string&, const std::string&) override { ++failed_; }
  void step_done(const train::StepReport&) override { ++steps_; }
  void waits(std::int64_t runs) override {
    waiting_for_ = runs;
    if (on_wait_) on_wait_();
  }

  std::int64_t total_ = 0, reused_ = 0, steps_ = 0, failed_ = 0, waiting_for_ = 0;
  std::vector<std::string> begun_;
  std::function<void()> on_wait_;
};

}  // namespace sape2::study::test
