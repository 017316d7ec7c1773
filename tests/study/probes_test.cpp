#include "sape2/study/probes.h"

#include "sape2/base/error.h"

#include "study/small_models.h"

#include <gtest/gtest.h>

#include <cmath>

namespace sape2::study {
namespace {

ProbeOptions few_images() {
  return {.data = {.name = "shapes"}, .images = 60};
}

void expect_shape(const ProbeResult& result) {
  EXPECT_FALSE(result.question.empty());
  EXPECT_FALSE(result.reading.empty());
  for (const ProbeTable& table : result.tables) {
    EXPECT_FALSE(table.rows.empty()) << table.title;
    for (const ProbeRow& row : table.rows) {
      EXPECT_EQ(row.values.size() + 1, table.columns.size()) << table.title;
    }
  }
}

TEST(Probes, SizesAroundTheOneTrainedAt) {
  const auto model_held = test::small_model("sape2-rel-k");
  nn::ViT& model = *model_held;
  const ProbeResult result = run_probe("sizes", model, few_images());
  expect_shape(result);
  std::vector<std::string> labels;
  for (const ProbeRow& row : result.tables.at(0).rows) labels.push_back(row.label);
  EXPECT_EQ(labels,
            (std::vector<std::string>{"16×16", "24×24", "32×32", "40×40", "48×48", "64×64"}));
}

TEST(Probes, ScaleNeedsAModelOfShapes) {
  const auto model_held = test::small_model("ape");
  nn::ViT& model = *model_held;
  const ProbeResult result = run_probe("scale", model, few_images());
  expect_shape(result);
  EXPECT_EQ(result.tables.at(0).rows.size(), 5u);

  nn::ModelConfig other = model.config();
  other.class_names.front() = "cat";
  nn::ViT stranger(other);
  stranger.eval();
  const ProbeResult left_out = run_probe("scale", stranger, few_images());
  EXPECT_TRUE(left_out.tables.empty());
  EXPECT_TRUE(left_out.reading.starts_with("Left out")) << left_out.reading;
}

TEST(Probes, AShiftByNothingChangesNothing) {
  const auto model_held = test::small_model("rope2d");
  nn::ViT& model = *model_held;
  const ProbeResult result = run_probe("translation", model, few_images());
  expect_shape(result);
  ASSERT_EQ(result.tables.at(0).rows.size(), 9u);
  EXPECT_EQ(result.tables[0].rows[0].values[0], 100);
}

// A bias that depends on the offset alone moves along exactly.
TEST(Probes, ABiasByOffsetMovesWithTheImage) {
  const auto model_held = test::small_model("rpe");
  nn::ViT& model = *model_held;
  const ProbeResult result = run_probe("translation", model, few_images());
  for (const ProbeRow& row : result.tables.at(1).rows) {
    EXPECT_NEAR(row.values[2], 1, 1e-3) << row.label;
  }
  const auto without_held = test::small_model("ape");
  nn::ViT& without = *without_held;
  const ProbeResult none = run_probe("translation", without, few_images());
  for (const ProbeRow& row : none.tables.at(1).rows) EXPECT_TRUE(std::isnan(row.values[2]));
}

// Features of a model without positions follow the content wherever it goes.
TEST(Probes, FeaturesWithoutPositionsFollowTheContent) {
  const auto model_held = test::small_model("none");
  nn::ViT& model = *model_held;
  const ProbeResult result = run_probe("translation", model, few_images());
  for (const ProbeRow& row : result.tables.at(1).rows) {
    EXPECT_GT(row.values[0], row.values[1] + 0.1) << row.label;
  }
}

// Matched by their places, a bias by offset cannot tell regions apart, though near pairs are more
// often inside one.
TEST(Probes, RegionsAreMatchedByPlace) {
  const auto model_held = test::small_model("rpe");
  nn::ViT& model = *model_held;
  const ProbeResult result = run_probe("region", model, few_images());
  expect_shape(result);
  for (const ProbeRow& row : result.tables.at(0).rows) {
    EXPECT_NEAR(row.values[0], 0, 1e-3) << row.label;
    EXPECT_GT(row.values[2], 0);
  }
}

TEST(Probes, EveryLayerHasFiguresOfItsOwn) {
  const auto model_held = test::small_model("rpe");
  const ProbeResult result = run_probe("region", *model_held, few_images());
  const auto& rows = result.tables.at(0).rows;
  ASSERT_GT(rows.size(), 2u);
  EXPECT_NE(rows[0].values[2], rows[1].values[2]);
  EXPECT_NE(rows[0].values[4], rows[1].values[4]);
}

TEST(Probes, AnEncodingWithoutBiasSaysSo) {
  const auto model_held = test::small_model("ape");
  nn::ViT& model = *model_held;
  const ProbeResult result = run_probe("region", model, few_images());
  EXPECT_TRUE(std::isnan(result.tables.at(0).rows.back().values[0]));
  EXPECT_NE(result.reading.find("no bias"), std::string::npos);
  EXPECT_NEAR(result.tables[0].rows.back().values[2], result.tables[0].rows.back().values[4], 1e-3);
}

TEST(Probes, AnUnknownNameIsAnsweredWithTheNearest) {
  const auto model_held = test::small_model("ape");
  nn::ViT& model = *model_held;
  try {
    run_probe("regions", model, few_images());
    FAIL() << "an unknown probe was run";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("\"region\""), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace sape2::study
