// results.json of other machines, which may be damaged, edited or forged.
#include "sape2/study/comparison_report.h"

#include "study/figures.h"
#include "support/error_text.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <functional>

namespace sape2::study {
namespace {

using Json = nlohmann::json;
using namespace sape2::testing;

Json whole() {
  Comparison comparison = test::figures({{"ape", {80, 81}}, {"rope2d", {84, 85}}});
  for (RowResult& row : comparison.rows) {
    for (RunResult& run : row.runs) run.epochs = {{.epoch = 1, .train_loss = 2}};
  }
  comparison.rows[0].failed = {{7, "the loss is not a finite number at step 6"}};
  comparison.plan.tuning = TuningPlan{.axes = {parse_tuning_axis("learning-rate=1e-3,5e-4")}};
  return Json::parse(json_report(comparison));
}

std::string refusal(const std::function<void(Json&)>& forge) {
  Json json = whole();
  forge(json);
  return error_text([&] { comparison_from_json(json.dump(), "results.json"); });
}

// Of the first run of the first row.
std::string refusal_of(const std::string& key, const Json& value) {
  return refusal([&](Json& json) { json["rows"][0]["runs"][0][key] = value; });
}

TEST(ComparisonReader, TakesWhatWasWritten) {
  EXPECT_NO_THROW(comparison_from_json(whole().dump(), "results.json"));
}

TEST(ComparisonReader, FiguresAreThoseThatATrainingCanHave) {
  for (const char* share : {"top-1", "top-5", "best top-1"}) {
    expect_contains(refusal_of(share, 950), "expected a number from 0 to 100");
    expect_contains(refusal_of(share, -1e-3), "expected a number from 0 to 100");
    expect_contains(refusal_of(share, true), "expected a number");
  }
  for (const Json& loss : {Json(1e300), Json(-1), Json(nullptr)}) {
    expect_contains(refusal_of("loss", loss), "\"loss\"");
  }
  expect_contains(refusal_of("seconds", -1), "expected a time");
  expect_contains(refusal_of("images/s", 1e300), "\"images/s\"");
  expect_contains(refusal_of("peak bytes", -1), "expected a whole number from 0");
  expect_contains(refusal_of("seed", -1), "a run of row 1 has \"seed\" = \"-1\"");
  expect_contains(refusal_of("seed", 0.5), "expected a whole number from 0");
  expect_contains(refusal([](Json& json) { json["rows"][1]["parameters"] = -3; }), "row 2");
  expect_contains(refusal([](Json& json) { json["rows"][0]["paper"]["top-1"] = 400; }), "paper");
  // Ticks of an axis that begins here would never end.
  expect_contains(refusal([](Json& json) {
                    json["rows"][0]["runs"][0]["epochs"][0]["epoch"] = 1'000'000'000'000'000'000;
                  }),
                  "a run of row 1 has \"epoch\"");
}

TEST(ComparisonReader, NothingCountsTwice) {
  expect_contains(refusal([](Json& json) { json["rows"].push_back(json["rows"][0]); }),
                  "it has ape twice");
  expect_contains(refusal([](Json& json) {
                    auto& runs = json["rows"][1]["runs"];
                    runs.push_back(runs[0]);
                  }),
                  "row 2 has seed 0 twice");
  expect_contains(refusal([](Json& json) { json["rows"][0]["failed"][0]["seed"] = 1; }),
                  "row 1 has seed 1 twice");
  expect_contains(refusal([](Json& json) { json["seeds"] = {3, 4, 3}; }), "it has seed 3 twice");
}

TEST(ComparisonReader, ASmallFileAsksForLittle) {
  const auto with_seeds = [](const Json& seeds) {
    return refusal([&](Json& json) { json["seeds"] = seeds; });
  };
  expect_contains(with_seeds(1'000'000'000), "expected a smaller number");
  expect_contains(with_seeds(0), "expected a whole number from 1");
  expect_contains(with_seeds(Json::array()), "expected at least one");
  expect_contains(refusal([](Json& json) { json["rows"] = Json::array(); }), "no rows");
  expect_contains(refusal([](Json& json) {
                    std::vector<double> values;
                    for (int i = 1; i < 50; ++i) values.push_back(0.01 * i);
                    for (const char* key : {"weight_decay", "beta1", "beta2", "dropout"}) {
                      json["tuning"]["axes"][key] = values;
                    }
                  }),
                  "more than 1000 combinations");
  expect_contains(refusal([](Json& json) { json["tuning"]["axes"]["beta1"] = Json::array(); }),
                  "no value for beta1");
}

// What is nested deeply is not shown, copied or taken apart, all of which would recurse.
TEST(ComparisonReader, DeepNestingIsRefused) {
  constexpr std::size_t kDepth = 200'000;
  const std::string deep = std::string(kDepth, '[') + std::string(kDepth, ']');
  for (const char* key : {"configuration", "rows", "seeds", "verdict"}) {
    const std::string text = "{\"" + std::string(key) + "\":" + deep + "}";
    expect_contains(error_text([&] { comparison_from_json(text, "results.json"); }),
                    "nested too deeply");
  }
}

TEST(ComparisonReader, SettingsAreSingleValues) {
  const auto chosen = [](const Json& value) {
    return refusal([&](Json& json) { json["rows"][0]["chosen"] = {{"learning_rate", value}}; });
  };
  expect_contains(chosen(Json::array()), "learning_rate is not a single value");
  expect_contains(chosen(18446744073709551615ULL), "too large");
  expect_contains(chosen(1e300), "expected a number from 0 to 10");
}

}  // namespace
}  // namespace sape2::study
