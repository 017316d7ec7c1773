#include "sape2/base/error.h"
#include "sape2/data/shapes.h"
#include "sape2/train/run.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <set>

namespace sape2::train {
namespace {

// Images that say their number.
data::Dataset numbered(int64_t images) {
  data::Dataset dataset = data::make_shapes({.split = data::Split::train, .count = images}).dataset;
  dataset.labels = at::arange(images, at::kLong);
  return dataset;
}

std::set<int64_t> numbers(const data::Dataset& dataset) {
  std::set<int64_t> found;
  for (int64_t i = 0; i < dataset.size(); ++i) found.insert(dataset.labels[i].item<int64_t>());
  return found;
}

TEST(HoldOut, PartsTheImagesByAFixedDraw) {
  const data::Dataset all = numbered(50);
  const RunData parts = hold_out(all, 5);
  EXPECT_EQ(parts.test.size(), 5);
  EXPECT_EQ(parts.train.size(), 45);
  std::set<int64_t> both = numbers(parts.test);
  both.merge(numbers(parts.train));
  EXPECT_EQ(both.size(), 50u) << "no image is in both parts";
  EXPECT_NE(numbers(parts.test), (std::set<int64_t>{0, 1, 2, 3, 4})) << "drawn, not cut off";
  // The draw is part of every figure that was chosen by it.
  EXPECT_EQ(numbers(hold_out(all, 5).test), numbers(parts.test));
  const int64_t first = parts.test.labels[0].item<int64_t>();
  EXPECT_TRUE(at::equal(parts.test.images[0], all.images[first]));
}

TEST(HoldOut, SomeImagesHaveToStay) {
  const data::Dataset all = numbered(5);
  EXPECT_THROW(hold_out(all, 5), Error);
  EXPECT_THROW(hold_out(all, 0), Error);
}

TEST(HoldOut, ARunKnowsWhatItWasTestedOn) {
  RunConfig config;
  config.data = {.name = "shapes", .train_images = 100, .held_out = 10};
  const RunConfig back = run_config_from_json(to_json(config), "config.json");
  EXPECT_EQ(back, config);
  const RunData data = load_run_data(back.data);
  EXPECT_EQ(data.train.size(), 90);
  EXPECT_EQ(data.test.size(), 10);
}

// Runs of older versions must go on: their checkpoints carry the fingerprint.
TEST(HoldOut, RunsWithoutItKeepTheirFingerprint) {
  RunConfig config;
  config.data.name = "shapes";
  EXPECT_EQ(to_json(config).find("held_out"), std::string::npos);
  const std::string before = fingerprint(config);
  config.data.held_out = 1;
  EXPECT_NE(fingerprint(config), before);
}

}  // namespace
}  // namespace sape2::train
