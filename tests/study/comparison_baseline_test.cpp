#include "sape2/study/comparison_report.h"

#include "study/figures.h"
#include "support/error_text.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace sape2::study {
namespace {

using namespace sape2::testing;

Comparison against_open() {
  Comparison comparison =
      test::figures({{"sape2-rel-k[gates=open]", {87.63, 88.02, 87.50, 87.60, 87.80}},
                     {"sape2-rel-k", {87.70, 88.03, 88.15, 88.11, 88.03}},
                     {"rope2d", {85.0, 85.2, 85.1, 85.3, 85.2}},
                     {"sape2-rel-k[tables=per-head]", {87.5, 88.3, 87.4, 87.9, 87.8}},
                     {"ape", {81.5}}});
  comparison.plan.baseline = comparison.rows[0].row.encoding;
  return comparison;
}

TEST(Baseline, DifferencesAreTakenSeedBySeed) {
  const auto differences = baseline_differences(against_open());
  ASSERT_EQ(differences.size(), 5u);
  EXPECT_FALSE(differences[0]) << "the baseline itself";
  ASSERT_TRUE(differences[1]);
  EXPECT_EQ(differences[1]->seeds, (std::vector<std::uint64_t>{0, 1, 2, 3, 4}));
  EXPECT_NEAR(differences[1]->points[2], 0.65, 1e-9);
  // python3 -c 'from scipy import stats
  // print(stats.ttest_rel([87.70, 88.03, 88.15, 88.11, 88.03], [87.63, 88.02, 87.50, 87.60, 87.80])
  //       .confidence_interval(0.95))'
  EXPECT_NEAR(differences[1]->difference.mean, 0.294, 1e-9);
  EXPECT_NEAR(differences[1]->difference.interval->low, -0.0507267159, 1e-8);
  EXPECT_NEAR(differences[1]->difference.interval->high, 0.6387267159, 1e-8);
}

// The order of runs, and seeds that only one of two has, change nothing.
TEST(Baseline, SeedsArePairedByTheirNumber) {
  Comparison comparison = against_open();
  std::ranges::reverse(comparison.rows[1].runs);
  comparison.rows[1].runs.push_back({.seed = 9, .figures = {{"top1", 0.1}}});
  const auto shuffled = baseline_differences(comparison)[1];
  EXPECT_NEAR(shuffled->difference.mean, 0.294, 1e-9);
  EXPECT_EQ(shuffled->seeds.size(), 5u);
}

TEST(Baseline, StandsInTheTable) {
  const ReportTable table = report_table(against_open());
  const auto column =
      std::ranges::find(table.header, "less sape2-rel-k[gates=open]") - table.header.begin();
  ASSERT_LT(column, std::ssize(table.header));
  EXPECT_EQ(table.rows[0][column], "–");
  EXPECT_EQ(table.rows[1][column], "+0.29 (-0.05 to +0.64, 5 seeds)");
  EXPECT_EQ(table.rows[4][column], "-6.13 (1 seed)");
}

TEST(Baseline, ProseSaysWhatCannotBeToldApart) {
  const std::string text = report_verdict(against_open());
  expect_contains(text, "Against sape2-rel-k[gates=open], in points: rope2d -2.55 (");
  expect_contains(text,
                  "Not distinguishable from sape2-rel-k[gates=open]: sape2-rel-k +0.29 (-0.05 to "
                  "+0.64, 5 seeds) and sape2-rel-k[tables=per-head]");
  expect_contains(text,
                  "Fewer than two seeds in common with sape2-rel-k[gates=open], so no "
                  "interval: ape -6.13 (1 seed)");
  expect_contains(text, "for these 10,000 test images");
  EXPECT_EQ(text.find("cannot be told"), std::string::npos)
      << "one way of comparing at a time: " << text;
}

TEST(Baseline, NoSeedInCommonIsSaid) {
  Comparison comparison = against_open();
  for (RunResult& run : comparison.rows[2].runs) run.seed += 100;
  EXPECT_FALSE(baseline_differences(comparison)[2]);
  expect_contains(report_verdict(comparison), "rope2d (no seed)");
}

TEST(Baseline, StandsInTheJson) {
  const std::string text = json_report(against_open());
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json["baseline"], "sape2-rel-k[gates=open]");
  EXPECT_FALSE(json["rows"][0].contains("difference"));
  const auto& difference = json["rows"][1]["difference"];
  EXPECT_EQ(difference["seeds"].size(), 5u);
  EXPECT_NEAR(difference["mean"].get<double>(), 0.294, 1e-9);
  EXPECT_NEAR(difference["interval"][0].get<double>(), -0.0507267159, 1e-8);
  EXPECT_TRUE(json["rows"][4]["difference"]["interval"].is_null());
  EXPECT_EQ(json_report(comparison_from_json(text, "results.json")), text);
}

TEST(Baseline, ReportHasAForestPlot) {
  const std::string html = html_report(against_open());
  expect_contains(html, "top-1 less that of sape2-rel-k[gates=open]");
  // A point for each of four rows, a line for each of the three with an interval.
  const auto count = [&](const std::string& part) {
    std::size_t found = 0;
    for (auto at = html.find(part); at != std::string::npos; at = html.find(part, at + 1)) ++found;
    return found;
  };
  EXPECT_EQ(count(" r=\"5\"/>"), 4u);
  EXPECT_EQ(html.find("nan"), std::string::npos);
  Comparison without = against_open();
  without.plan.baseline.reset();
  EXPECT_EQ(html_report(without).find(" r=\"5\"/>"), std::string::npos);
}

}  // namespace
}  // namespace sape2::study
