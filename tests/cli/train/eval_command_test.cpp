#include "sape2/components.h"
#include "sape2/io/model_file.h"
#include "sape2/nn/vit.h"

#include "cli/run_sape2.h"
#include "cli/small_model.h"
#include "support/scratch_folder.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <sstream>

namespace sape2::cli::test {
namespace {

using nlohmann::json;
using namespace sape2::testing;

TEST(Eval, PrintsOneLineAFigure) {
  const ScratchFolder folder;
  const Outcome outcome =
      run_sape2({"eval", save_model(folder), "--data", "shapes", "--images", "50"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  std::istringstream lines(outcome.out);
  std::string name;
  double value = 0;
  std::vector<std::string> names;
  double top1 = 0, low = -1, high = -1;
  while (lines >> name >> value) {
    names.push_back(name);
    if (name == "top-1") top1 = value;
    if (name == "interval") {
      low = value;
      lines >> name >> high;
    }
  }
  EXPECT_EQ(names, (std::vector<std::string>{"top-1", "top-5", "loss", "images", "interval"}))
      << outcome.out;
  EXPECT_LE(low, top1);
  EXPECT_LE(top1, high);
  EXPECT_GT(high - low, 10) << "fifty images tell little";
}

TEST(Eval, TakesARunFolderAndOtherSizesAndGivesJson) {
  const ScratchFolder folder;
  save_model(folder);
  const Outcome outcome = run_sape2(
      {"eval", folder.path(), "--data", "shapes", "--images", "20", "--size", "48", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const json result = json::parse(outcome.out);
  EXPECT_EQ(result["height"], 48);
  EXPECT_EQ(result["images"], 20);
  std::int64_t counted = 0, right = 0;
  for (std::size_t i = 0; i < result["confusion"].size(); ++i) {
    for (const auto& count : result["confusion"][i]) counted += count.get<std::int64_t>();
    right += result["confusion"][i][i].get<std::int64_t>();
  }
  EXPECT_EQ(counted, 20);
  EXPECT_LE(result["top-1 interval"][0], result["top-1"]);
  EXPECT_GE(result["top-1 interval"][1], result["top-1"]);
  EXPECT_NEAR(result["top-1"].get<double>(), 100 * static_cast<double>(right) / 20, 1e-9);
}

TEST(Eval, DrawsTheConfusionMatrix) {
  if (!SAPE2_HAVE_DRAWING) GTEST_SKIP() << "this build cannot draw";
  const ScratchFolder folder;
  const auto picture = folder / "confusion.png";
  const Outcome outcome = run_sape2(
      {"eval", save_model(folder), "--data", "shapes", "--images", "20", "--confusion", picture});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_TRUE(is_png(picture));
}

TEST(Eval, RefusesClassesTheModelDoesNotKnow) {
  const ScratchFolder folder;
  nn::ModelConfig config;
  config.vit.depth = 1;
  config.vit.width = 16;
  config.vit.heads = 2;
  config.class_names = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"};
  io::save_model(folder / "best.safetensors", nn::ViT(config));
  expect_mistake(run_sape2({"eval", folder.path(), "--data", "shapes"}), 1, "\"a\"");
}

TEST(Eval, AnswersMistakesWithASentence) {
  const ScratchFolder folder;
  const std::string model = save_model(folder);
  expect_mistake(run_sape2({"eval", model, "--data", "shape"}), 1, "\"shapes\"");
  expect_mistake(run_sape2({"eval", folder / "none", "--data", "shapes"}), 1, "none");
  expect_mistake(run_sape2({"eval", model, "--data", "shapes", "--size", "30"}), 1, "30×30");
  expect_mistake(run_sape2({"eval", model, "--data", "shapes", "--device", "gpu"}), 1, "cuda");
  expect_mistake(run_sape2({"eval", model}), 2, "--data");
  expect_mistake(run_sape2({"eval", model, "--data", "shapes", "--split", "valid"}), 2, "valid");
  const ScratchFolder empty;
  expect_mistake(run_sape2({"eval", empty.path(), "--data", "shapes"}), 1, "best.safetensors");
  expect_mistake(run_sape2({"eval", model, "--data", "shapes", "--images", "9", "--confusion",
                            "/nowhere/at/all.png"}),
                 1, "/nowhere/at/all.png");
}

}  // namespace
}  // namespace sape2::cli::test
