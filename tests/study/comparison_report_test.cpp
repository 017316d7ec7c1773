#include "sape2/study/comparison_report.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>

namespace sape2::study {
namespace {

RunResult run_with(std::uint64_t seed, double top1) {
  RunResult run{.seed = seed, .top1 = top1, .top5 = 0.99, .loss = 0.5, .best_top1 = top1 + 0.01};
  run.seconds = 90;
  run.images_per_second = 250;
  run.peak_bytes = 300 << 20;
  for (int epoch = 1; epoch <= 3; ++epoch) {
    const train::TestRecord tested{2.0 / epoch, top1 * epoch / 3, 0.9};
    run.epochs.push_back({epoch, 10 * epoch, 2.5 / epoch, tested, 30.0 * epoch});
  }
  return run;
}

Comparison two_rows() {
  Comparison comparison;
  comparison.plan.common.data.name = "folder:/tmp/<b>&\"";
  comparison.plan.model = "vit-micro";
  comparison.plan.recipe = "quick";
  comparison.plan.seeds = 2;
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
  EXPECT_EQ(cell(table, 0, "time a run"), "1.5 min");
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

TEST(Report, IsWrittenBeforeAnyRunHasEnded) {
  Comparison comparison = two_rows();
  for (RowResult& row : comparison.rows) row.runs.clear();
  EXPECT_EQ(cell(report_table(comparison), 0, "top-1 %"), "–");
  EXPECT_EQ(html_report(comparison).find("nan"), std::string::npos);
}

}  // namespace
}  // namespace sape2::study
