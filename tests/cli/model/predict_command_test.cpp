#include "sape2/components.h"
#include "sape2/data/shapes.h"

#include "cli/run_sape2.h"
#include "cli/small_model.h"
#include "support/scratch_folder.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace sape2::cli::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using namespace sape2::testing;

TEST(Predict, NamesTheClassesOfEveryImage) {
  if (!SAPE2_HAVE_IMAGES) GTEST_SKIP() << "this build reads no images";
  const ScratchFolder folder;
  const std::string model = save_model(folder);
  const Outcome outcome = run_sape2({"predict", model, save_picture(folder, "one.png"),
                                     save_picture(folder, "two.png"), "--top", "2", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const json result = json::parse(outcome.out);
  ASSERT_EQ(result.size(), 2u);
  EXPECT_EQ(result[0]["predictions"].size(), 2u);
  EXPECT_EQ(result[0]["predictions"], result[1]["predictions"]);
  EXPECT_GE(result[0]["predictions"][0]["probability"], result[0]["predictions"][1]["probability"]);
}

TEST(Predict, TakesImagesOfADataSetAndDrawsASheet) {
  if (!SAPE2_HAVE_DRAWING) GTEST_SKIP() << "this build cannot draw";
  const ScratchFolder folder;
  const std::string model = save_model(folder);
  const auto sheet = folder / "sheet.png";
  const Outcome outcome =
      run_sape2({"predict", model, "shapes:test:0-11", "--top", "1", "--sheet", sheet});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_TRUE(is_png(sheet));
  EXPECT_NE(outcome.out.find("shapes:test:11, "), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find(" of 12 "), std::string::npos) << outcome.out;

  const json result =
      json::parse(run_sape2({"predict", model, "shapes:test:3", "--json", "--top", "1"}).out);
  const auto shapes = data::make_shapes({.split = data::Split::test, .count = 4}).dataset;
  const auto label = static_cast<std::size_t>(shapes.labels[3].item<std::int64_t>());
  EXPECT_EQ(result[0]["label"], shapes.class_names[label]);
  expect_mistake(run_sape2({"predict", model, "shapes:test:0", "--sheet", "sheet.bmp"}), 1, ".svg");
}

TEST(Predict, GivesEachBadFileASentenceAndGoesOn) {
  if (!SAPE2_HAVE_IMAGES) GTEST_SKIP() << "this build reads no images";
  const ScratchFolder folder;
  const std::string model = save_model(folder);
  std::ofstream(folder / "torn.png") << "\x89PNG\r\n\x1a\nxxx";
  const Outcome outcome = run_sape2({"predict", model, folder / "torn.png", folder / "missing.jpg",
                                     save_picture(folder, "good.png")});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_NE(outcome.out.find("good.png"), std::string::npos) << outcome.out;
  EXPECT_EQ(std::ranges::count(outcome.err, '\n'), 2) << outcome.err;
  EXPECT_NE(outcome.err.find("torn.png"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("missing.jpg"), std::string::npos) << outcome.err;
  expect_mistake(run_sape2({"predict", model}), 2, "images");
}

TEST(Predict, NamesOfImagesDoNotSteerTheTerminal) {
  if (!SAPE2_HAVE_IMAGES) GTEST_SKIP() << "this build reads no images";
  const ScratchFolder folder;
  const std::string model = save_model(folder);
  const std::string name = "a\x1b[31m\n\x7f\xC2\x9B\xE2\x80\xAE\xFFz.png";
  const std::string image = save_picture(folder, name);
  const auto expect_harmless = [](const std::string& text) {
    EXPECT_NE(text.find(R"(a\x1b[31m\x0a\u007f\u009b\u202e\xffz.png)"), std::string::npos) << text;
    for (const char* part : {"\x1b", "\x7f", "\xC2\x9B", "\xE2\x80\xAE", "\xFF"}) {
      EXPECT_EQ(text.find(part), std::string::npos) << text;
    }
  };
  const Outcome good = run_sape2({"predict", model, image});
  EXPECT_EQ(good.exit_code, 0) << good.err;
  expect_harmless(good.out);
  fs::remove(image);
  expect_harmless(run_sape2({"predict", model, image}).err);
  expect_harmless(run_sape2({"info", image}).err);
  expect_harmless(run_sape2({"eval", model, "--data", name}).err);
}

TEST(Predict, JsonKeepsNames) {
  if (!SAPE2_HAVE_IMAGES) GTEST_SKIP() << "this build reads no images";
  const ScratchFolder folder;
  const std::string image = save_picture(folder, "a\x1b[31m\n\x7f\xC2\x9B\"z.png");
  const Outcome outcome = run_sape2({"predict", save_model(folder), image, "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(json::parse(outcome.out)[0]["image"], image);
}

}  // namespace
}  // namespace sape2::cli::test
