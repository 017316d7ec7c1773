#include "sape2/study/comparison_report.h"

#include "support/error_text.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>

namespace sape2::study {
namespace {

using namespace sape2::testing;

RunResult run_with(std::uint64_t seed, double top1) {
  RunResult run{
      .seed = seed, .figures = {{"top1", top1}, {"top5", 0.99}}, .loss = 0.5, .best = top1 + 0.01};
  run.seconds = 90;
  run.images_per_second = 250;
  run.peak_bytes = 300 << 20;
  for (int epoch = 1; epoch <= 3; ++epoch) {
    const train::TestRecord tested{2.0 / epoch, {{"top1", top1 * epoch / 3}, {"top5", 0.9}}};
    run.epochs.push_back({epoch, 10 * epoch, 2.5 / epoch, tested, 30.0 * epoch});
  }
  return run;
}

Comparison two_rows() {
  Comparison comparison;
  comparison.plan.common.data.name = "folder:/tmp/<b>&\"";
  comparison.plan.model = "vit-micro";
  comparison.plan.recipe = "quick";
  comparison.plan.seeds = {0, 1};
  comparison.rows = {
      {{nn::EncodingSpec::parse("ape"), "ViT", {87.41, std::nullopt}},
       1234567,
       {run_with(0, 0.80), run_with(1, 0.82)}},
      {{nn::EncodingSpec::parse("sape2-k[gain=-1]+ape"), "", {}}, 42, {run_with(0, 0.9)}}};
  comparison.finished = false;
  return comparison;
}

std::string cell(const ReportTable& table, std::size_t row, const std::string& column) {
  for (std::size_t i = 0; i < table.header.size(); ++i) {
    if (table.header[i] == column) return table.rows.at(row).at(i);
  }
  return "no column " + column;
}

TEST(Spread, IsMeanAndSampleDeviation) {
  const Spread spread = spread_of({1, 2, 3, 4});
  EXPECT_DOUBLE_EQ(spread.mean, 2.5);
  EXPECT_DOUBLE_EQ(*spread.deviation, std::sqrt(5.0 / 3));
  EXPECT_FALSE(spread_of({7}).deviation);
  EXPECT_EQ(spread_of({7}).mean, 7);
}

TEST(Report, TableShowsMeansAndThePapersFigures) {
  const ReportTable table = report_table(two_rows());
  EXPECT_EQ(cell(table, 0, "top-1 %"), "81.00 ± 1.41");
  EXPECT_EQ(cell(table, 0, "paper's top-1 %"), "87.41");
  EXPECT_EQ(cell(table, 1, "paper's top-1 %"), "–");
  EXPECT_EQ(cell(table, 1, "top-1 %"), "90.00");
  EXPECT_EQ(cell(table, 0, "best epoch %"), "82.00 ± 1.41");
  EXPECT_EQ(cell(table, 0, "parameters"), "1,234,567");
  EXPECT_EQ(cell(table, 1, "parameters"), "42");
  EXPECT_EQ(cell(table, 0, "time per run"), "1.5 min");
  EXPECT_EQ(cell(table, 0, "peak memory"), "300 MiB");
  EXPECT_EQ(cell(table, 0, "runs"), "2");
  EXPECT_EQ(cell(table, 0, "paper's top-5 %"), "no column paper's top-5 %");
}

TEST(Report, MarkdownHasALineARow) {
  const std::string text = markdown_report(two_rows());
  EXPECT_NE(text.find("\n| ape | ViT | 81.00 ± 1.41 | 87.41 |"), std::string::npos) << text;
  EXPECT_NE(text.find("\n| sape2-k[gain=-1]+ape |"), std::string::npos) << text;
  EXPECT_NE(text.find("Not all runs are finished"), std::string::npos);
}

TEST(Report, JsonHoldsEveryRun) {
  const auto json = nlohmann::json::parse(json_report(two_rows()));
  EXPECT_EQ(json["finished"], false);
  ASSERT_EQ(json["rows"].size(), 2u);
  EXPECT_EQ(json["rows"][0]["runs"].size(), 2u);
  EXPECT_NEAR(json["rows"][0]["top-1"]["mean"].get<double>(), 81, 1e-9);
  EXPECT_TRUE(json["rows"][1]["top-1"]["deviation"].is_null());
  EXPECT_EQ(json["rows"][0]["paper"]["top-1"], 87.41);
  EXPECT_EQ(json["rows"][0]["runs"][1]["epochs"].size(), 3u);
}

TEST(Report, HtmlStandsAloneAndTrustsNoName) {
  const std::string html = html_report(two_rows());
  for (const char* foreign : {"http://", "https://", "src=", "<script", "<link", "@import"}) {
    EXPECT_EQ(html.find(foreign), std::string::npos) << foreign;
  }
  EXPECT_EQ(html.find("<b>"), std::string::npos);
  EXPECT_NE(html.find("/tmp/&lt;b&gt;&amp;&quot;"), std::string::npos);
  EXPECT_NE(html.find("<polyline"), std::string::npos);
  EXPECT_NE(html.find("<polygon class=\"band s0\""), std::string::npos);
  EXPECT_EQ(html.find("<polygon class=\"band s1\""), std::string::npos);
  EXPECT_EQ(html.find("nan"), std::string::npos);
}

TEST(Report, JsonIsReadBackWhole) {
  const std::string text = json_report(two_rows());
  const Comparison back = comparison_from_json(text, "results.json");
  EXPECT_EQ(json_report(back), text);
  EXPECT_EQ(html_report(back), html_report(two_rows()));
  EXPECT_EQ(back.plan.rows.size(), 2u);
}

// Files of older versions have the number of seeds alone.
TEST(Report, OlderFilesAreRead) {
  auto json = nlohmann::json::parse(json_report(two_rows()));
  EXPECT_EQ(json["seeds"], (std::vector<int>{0, 1}));
  json["seeds"] = 3;
  json["configuration"]["seed"] = 5;
  EXPECT_EQ(comparison_from_json(json.dump(), "results.json").plan.seeds,
            (std::vector<std::uint64_t>{5, 6, 7}));
}

TEST(Report, CaptionNamesTheSeeds) {
  Comparison comparison = two_rows();
  const auto says = [&](std::vector<std::uint64_t> seeds, const std::string& part) {
    comparison.plan.seeds = std::move(seeds);
    EXPECT_NE(report_caption(comparison).find(part), std::string::npos) << part;
  };
  says({3}, ", seed 3,");
  says({2, 0, 1}, ", seeds 0 to 2,");
  says({0, 1, 7}, ", seeds 0, 1 and 7,");
}

TEST(Report, RunsThatDivergedAreCounted) {
  Comparison comparison = two_rows();
  comparison.rows[0].failed = {{2, "the loss is not a finite number at step 6"}};
  EXPECT_EQ(cell(report_table(comparison), 0, "top-1 %"), "81.00 ± 1.41, 1 of 3 diverged");
  EXPECT_NE(report_verdict(comparison).find("ape has no figure for seed 2: the loss is not"),
            std::string::npos);
  const std::string text = json_report(comparison);
  EXPECT_EQ(json_report(comparison_from_json(text, "results.json")), text);
}

TEST(Report, WhatIsNoJsonOfAComparisonIsRefused) {
  const std::string whole = json_report(two_rows());
  auto without_rows = nlohmann::json::parse(whole);
  without_rows.erase("rows");
  auto odd = nlohmann::json::parse(whole);
  odd["rows"][0]["runs"][0]["top-1"] = "high";
  for (const std::string& text :
       {std::string(), std::string("[]"), whole.substr(0, 900), without_rows.dump(), odd.dump()}) {
    const std::string error = error_text([&] { comparison_from_json(text, "results.json"); });
    EXPECT_TRUE(error.starts_with("\"results.json\": this is no results.json")) << error;
  }
}

TEST(Report, IsWrittenBeforeAnyRunHasEnded) {
  Comparison comparison = two_rows();
  for (RowResult& row : comparison.rows) row.runs.clear();
  EXPECT_EQ(cell(report_table(comparison), 0, "top-1 %"), "–");
  EXPECT_EQ(html_report(comparison).find("nan"), std::string::npos);
  EXPECT_EQ(report_verdict(comparison), "");
}

// Rows of one data set, each with its runs' top-1 in %.
Comparison ranking(const std::vector<std::pair<std::string, std::vector<double>>>& rows) {
  Comparison comparison;
  comparison.plan.common.data.name = "cifar10";
  comparison.plan.common.recipe.epochs = 50;
  for (const auto& [encoding, accuracies] : rows) {
    RowResult row{{nn::EncodingSpec::parse(encoding)}, 1, {}};
    for (const double accuracy : accuracies) row.runs.push_back(run_with(0, accuracy / 100));
    comparison.rows.push_back(row);
  }
  return comparison;
}

void expect_says(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "\"" << part << "\" is not in: " << text;
}

TEST(Verdict, TellsALeadFromChance) {
  const std::string text = report_verdict(ranking({{"ape", {81.42, 81.60}},
                                                   {"sape2-rel-k[gates=open]", {87.63, 88.02}},
                                                   {"sape2-rel-k", {87.70, 88.03}}}));
  expect_says(text, "sape2-rel-k has the highest accuracy, 87.87 %.");
  expect_says(text, "ahead of ape (6.36) by that many points");
  expect_says(text, "It cannot be told apart from sape2-rel-k[gates=open] (0.04)");
  EXPECT_EQ(text.find("One run"), std::string::npos) << text;
  EXPECT_EQ(text.find("short"), std::string::npos) << text;
}

TEST(Verdict, SeedsThatDifferALotHideALead) {
  const auto rows = [](double spread) {
    return ranking({{"ape", {80 - spread, 80 + spread}}, {"rope2d", {84 - spread, 84 + spread}}});
  };
  expect_says(report_verdict(rows(0.1)), "ahead of ape");
  expect_says(report_verdict(rows(2)), "It cannot be told apart from ape (4.00)");
}

// The table ./demo --train makes: what it cannot say matters more than its order.
TEST(Verdict, FewImagesAndOneShortRunRankNothing) {
  Comparison comparison = ranking({{"rope2d", {41.5}}, {"sape2-rel-k", {38.1}}, {"ape", {31}}});
  comparison.plan.common.data.train_images = 8000;
  comparison.plan.common.data.test_images = 1000;
  comparison.plan.common.recipe.epochs = 4;
  const std::string text = report_verdict(comparison);
  expect_says(text, "ahead of ape (10.50)");
  expect_says(text, "It cannot be told apart from sape2-rel-k (3.40)");
  expect_says(text, "up to 4.3 points may come from other test images than these 1,000");
  expect_says(text, "One run of each");
  expect_says(text, "This training is short (32,000 images seen by each)");
}

TEST(Verdict, StandsInEveryReport) {
  const Comparison comparison = ranking({{"ape", {80, 81}}, {"rope2d", {90, 91}}});
  const std::string verdict = report_verdict(comparison);
  ASSERT_FALSE(verdict.empty());
  expect_says(markdown_report(comparison), verdict);
  expect_says(html_report(comparison), verdict);
  EXPECT_EQ(nlohmann::json::parse(json_report(comparison))["verdict"], verdict);
}

}  // namespace
}  // namespace sape2::study
