#include "sape2/study/comparison_merge.h"

#include "sape2/study/comparison_report.h"

#include "study/figures.h"
#include "support/error_text.h"

#include <gtest/gtest.h>

namespace sape2::study {
namespace {

using namespace sape2::testing;
using test::figures;

Comparison merged(const std::vector<Comparison>& parts) {
  std::vector<NamedComparison> named;
  for (const Comparison& part : parts) {
    named.push_back({std::string(1, static_cast<char>('A' + named.size())), part});
  }
  return merge_comparisons(named);
}

// As it comes from a file.
Comparison read_back(const Comparison& comparison) {
  return comparison_from_json(json_report(comparison), "results.json");
}

TEST(Merge, BringsSeedsAndRowsTogether) {
  const Comparison whole =
      merged({figures({{"ape", {80, 81}}, {"rope2d", {84, 85}}}),
              figures({{"ape", {82}}, {"rope2d", {86}}}, 2), figures({{"sape2-rel-k", {88}}}, 0)});
  ASSERT_EQ(whole.rows.size(), 3u);
  EXPECT_EQ(whole.plan.rows.size(), 3u);
  EXPECT_EQ(whole.rows[0].runs.size(), 3u);
  EXPECT_EQ(whole.rows[2].row.encoding.to_string(), "sape2-rel-k");
  EXPECT_EQ(whole.plan.seeds, (std::vector<std::uint64_t>{0, 1, 2}));
  EXPECT_TRUE(whole.finished) << "rows may be meant to have fewer seeds";
  EXPECT_EQ(report_table(whole).rows[0].back(), "3");
}

TEST(Merge, RunsFromATrainedModelStandApart) {
  const Comparison scratch = figures({{"ape", {80}}});
  Comparison adapted = figures({{"rope2d", {85}}});
  adapted.plan.common.init = "/models/ape.safetensors";
  adapted.plan.common.init_checksum = "crc32c:01234567";
  expect_contains(error_text([&] { merged({scratch, adapted}); }), "other models to start from");
  EXPECT_EQ(merged({adapted, read_back(adapted)}).rows.size(), 1u);
}

TEST(Merge, TheSameRunCountsOnce) {
  const Comparison one = figures({{"ape", {80.13, 81.77}}});
  EXPECT_EQ(merged({one, read_back(one), figures({{"ape", {81.77}}}, 1)}).rows[0].runs.size(), 2u);
}

TEST(Merge, RunsThatDisagreeAreRefused) {
  const std::string text = error_text([] {
    merged({figures({{"ape", {80, 81}}}), figures({{"ape", {81.5}}}, 1)});
  });
  expect_contains(text,
                  "\"B\" has another result than the files before it for ape, seed 1: 81.50 "
                  "% instead of 81.00 %");
  Comparison diverged = figures({{"ape", {}}});
  diverged.rows[0].failed = {{0, "the loss is not a finite number"}};
  expect_contains(error_text([&] { merged({figures({{"ape", {80}}}), diverged}); }), "it diverged");
  expect_contains(error_text([&] { merged({diverged, figures({{"ape", {80}}})}); }), "diverging");
  EXPECT_EQ(merged({diverged, diverged}).rows[0].failed.size(), 1u);
}

TEST(Merge, WhatDoesNotBelongTogetherIsRefused) {
  const Comparison one = figures({{"ape", {80}}});
  const auto refusal = [&](const std::function<void(Comparison&)>& change) {
    Comparison other = figures({{"rope2d", {80}}});
    change(other);
    return error_text([&] { merged({one, other}); });
  };
  expect_contains(refusal([](Comparison& c) { c.plan.common.data.name = "cifar100"; }),
                  "\"A\" and \"B\" have other data");
  expect_contains(refusal([](Comparison& c) { c.plan.common.model.vit.depth = 3; }),
                  "other models");
  expect_contains(refusal([](Comparison& c) { c.plan.common.recipe.epochs = 51; }),
                  "other recipes");
  expect_contains(refusal([](Comparison& c) { c.plan.tuning = TuningPlan{}; }), "other tunings");
  // Where the data lay, and on what it was trained, is another machine's matter.
  Comparison elsewhere = figures({{"rope2d", {80}}});
  elsewhere.plan.common.data.root = "/mnt/data";
  elsewhere.plan.common.device = "cuda:3";
  EXPECT_EQ(merged({one, elsewhere}).rows.size(), 2u);
}

TEST(Merge, AnUnfinishedPartIsSaidUnlessTheOthersHaveItsRuns) {
  Comparison half = figures({{"ape", {80}}, {"rope2d", {}}});
  half.finished = false;
  EXPECT_FALSE(merged({half, figures({{"ape", {81}}}, 1)}).finished);
  EXPECT_TRUE(merged({half, figures({{"rope2d", {84}}})}).finished);
}

TEST(Merge, ChoicesOfATuningMustAgree) {
  const auto tuned = [](double rate, double top1) {
    Comparison comparison = figures({{"ape", {80}}});
    comparison.plan.tuning =
        TuningPlan{.axes = {parse_tuning_axis("learning-rate=1e-3,5e-4")}, .epochs = 3};
    comparison.rows[0].trials = {{{{"learning_rate", 1e-3}}, top1, 1}};
    comparison.rows[0].chosen = {{"learning_rate", rate}};
    return comparison;
  };
  EXPECT_EQ(merged({tuned(1e-3, 0.8), read_back(tuned(1e-3, 0.8))}).rows[0].trials.size(), 1u);
  expect_contains(error_text([&] {
                    merged({tuned(1e-3, 0.8), tuned(5e-4, 0.8)});
                  }),
                  "learning_rate 0.0005 instead of learning_rate 0.001");
  expect_contains(error_text([&] {
                    merged({tuned(1e-3, 0.8), tuned(1e-3, 0.7)});
                  }),
                  "for the tuning of ape with learning_rate 0.001");
}

}  // namespace
}  // namespace sape2::study
