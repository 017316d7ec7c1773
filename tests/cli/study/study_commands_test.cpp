#include "sape2/components.h"
#include "sape2/data/image.h"
#include "sape2/data/shapes.h"
#include "sape2/io/model_file.h"
#include "sape2/io/tensor_file.h"
#include "sape2/nn/vit.h"

#include "cli/run_sape2.h"
#include "support/file_bytes.h"
#include "support/scratch_folder.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <limits>

namespace sape2::cli::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using namespace sape2::testing;

fs::path save_model(const ScratchFolder& folder) {
  const auto shapes = data::make_shapes({.split = data::Split::test, .count = 1});
  nn::ModelConfig config;
  config.vit.depth = 1;
  config.vit.width = 16;
  config.vit.heads = 2;
  config.class_names = shapes.dataset.class_names;
  const auto path = folder / "best.safetensors";
  io::save_model(path, nn::ViT(config));
  return path;
}

fs::path save_picture(const ScratchFolder& folder, const std::string& name) {
  data::write_png(folder / name, {40, 50, 3, std::vector<std::uint8_t>(40 * 50 * 3, 77)});
  return folder / name;
}

bool is_png(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  char head[8] = {};
  stream.read(head, sizeof head);
  return std::string(head, sizeof head) == "\x89PNG\r\n\x1a\n";
}

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

// One weight that is not a number once gave a plausible accuracy.
TEST(Models, WeightsThatAreNoNumbersAreRefusedEverywhere) {
  const ScratchFolder folder;
  const std::string good = save_model(folder), broken = folder / "broken.safetensors";
  auto tensors = io::load_tensors(good);
  tensors["head.weight"][3][1] = std::numeric_limits<float>::quiet_NaN();
  io::save_tensors(broken, tensors, io::SafetensorsFile::open(good).metadata());
  const std::string part = "\"head.weight\" holds a NaN or an infinity at [3, 1]";
  expect_mistake(run_sape2({"eval", broken, "--data", "shapes", "--images", "9"}), 1, part);
  expect_mistake(run_sape2({"predict", broken, "any.png"}), 1, part);
  expect_mistake(run_sape2({"explain", broken, "shapes:test:0", "-o", "f.png"}), 1, part);
  expect_mistake(run_sape2({"convert", broken, "-o", folder / "out"}), 1, part);
  expect_mistake(run_sape2({"serve", broken}), 1, part);
}

// Finite weights whose products are not.
TEST(Models, ResultsThatAreNoNumbersAreRefusedEverywhere) {
  const ScratchFolder folder;
  const std::string model = save_model(folder);
  auto tensors = io::load_tensors(model);
  for (auto& [name, tensor] : tensors) {
    if (name.find("norm") != std::string::npos && name.ends_with(".weight")) tensor.fill_(3e38);
  }
  io::save_tensors(model, tensors, io::SafetensorsFile::open(model).metadata());
  const std::string part = "output is not a finite number";
  expect_mistake(run_sape2({"eval", model, "--data", "shapes", "--images", "9"}), 1, part);
  expect_mistake(run_sape2({"explain", model, "shapes:test:0", "--npz", folder / "n.npz"}), 1,
                 part);
  if (!SAPE2_HAVE_IMAGES) return;
  expect_mistake(run_sape2({"predict", model, save_picture(folder, "one.png")}), 1, "one.png");
}

TEST(Models, AbsurdClassNamesAreRefusedAtOnce) {
  const ScratchFolder folder;
  const std::string model = save_model(folder);
  const auto file = io::SafetensorsFile::open(model);
  auto metadata = file.metadata();
  json config = json::parse(metadata.at("sape2_config"));
  config["class_names"][2] = std::string(100'000, 'w');
  metadata["sape2_config"] = config.dump();
  io::save_tensors(model, io::load_tensors(model), metadata);
  const std::string part = "has 100000 bytes, expected at most 256";
  expect_mistake(run_sape2({"explain", model, "shapes:test:0", "-o", folder / "f.png"}), 1, part);
  expect_mistake(run_sape2({"info", model}), 1, part);
}

TEST(Convert, HalvesTheFileAndKeepsWhatItSays) {
  const ScratchFolder folder;
  const fs::path model = save_model(folder), half = folder / "half.safetensors";
  const Outcome outcome = run_sape2({"convert", model, "-o", half});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_LT(fs::file_size(half), fs::file_size(model) * 2 / 3);
  EXPECT_EQ(io::read_model_config(half), io::read_model_config(model));
  const auto rounded = io::load_model(half)->parameters();
  const auto exact = io::load_model(model)->parameters();
  ASSERT_EQ(rounded.size(), exact.size());
  for (std::size_t i = 0; i < exact.size(); ++i) {
    EXPECT_TRUE(rounded[i].equal(exact[i].to(at::kBFloat16).to(at::kFloat))) << i;
  }
  // What is rounded once stays as it is.
  const fs::path again = folder / "again.safetensors";
  ASSERT_EQ(run_sape2({"convert", half, "-o", again, "--weights", "float32"}).exit_code, 0);
  EXPECT_TRUE(io::load_model(again)->parameters().front().equal(rounded.front()));
}

TEST(Convert, AnswersMistakesWithASentence) {
  const ScratchFolder folder;
  const std::string model = save_model(folder);
  expect_mistake(run_sape2({"convert", model}), 2, "--out");
  expect_mistake(run_sape2({"convert", model, "-o", folder / "x", "--weights", "int8"}), 2, "int8");
  expect_mistake(run_sape2({"convert", model, "-o", "/nowhere/x.safetensors"}), 1, "/nowhere");
  expect_mistake(run_sape2({"convert", folder / "none", "-o", folder / "x"}), 1, "none");
}

// What a command reads it does not write over, whatever its name is.
TEST(Commands, KeepTheFilesThatTheyRead) {
  const ScratchFolder folder;
  const std::string model = save_model(folder), link = folder / "link.safetensors";
  fs::create_symlink(model, link);
  const auto keeps = [&](const std::vector<std::string>& arguments, const std::string& file) {
    const std::string before = file_bytes(file);
    expect_mistake(run_sape2(arguments), 1, "this command reads that file");
    EXPECT_EQ(file_bytes(file), before);
  };
  for (const std::string& out : {model, link, (folder / "./best.safetensors").native()}) {
    keeps({"export", model, "-o", out}, model);
    keeps({"convert", model, "-o", out}, model);
    keeps({"explain", model, "shapes:test:0", "--safetensors", out}, model);
    keeps({"eval", model, "--data", "shapes", "--images", "4", "--confusion", out}, model);
  }
  const std::string recipe = folder / "recipe.toml";
  std::ofstream(recipe) << "epochs = 1\n";
  keeps({"bench", "train", "--recipe", recipe, "--json", recipe}, recipe);
  if (!SAPE2_HAVE_IMAGES || !SAPE2_HAVE_DRAWING) return;
  const std::string picture = save_picture(folder, "one.png");
  keeps({"explain", model, picture, "-o", picture}, picture);
  keeps({"predict", model, picture, "--sheet", picture}, picture);
  // A model is read whatever its name ends in; of a folder, the best one.
  const std::string run = folder / "run", drawn = folder / "run/drawn.png";
  fs::create_directory(run);
  fs::copy_file(model, drawn);
  fs::create_symlink("drawn.png", fs::path(run) / "best.safetensors");
  keeps({"predict", drawn, picture, "--sheet", drawn}, drawn);
  keeps({"predict", run, picture, "--sheet", drawn}, drawn);
}

TEST(Probe, PrintsEveryProbe) {
  const ScratchFolder folder;
  const std::string model = save_model(folder);
  const Outcome outcome = run_sape2({"probe", model, "--images", "40", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const json result = json::parse(outcome.out);
  ASSERT_EQ(result.size(), 5u);
  for (const auto& probe : result) EXPECT_FALSE(probe["reading"].get<std::string>().empty());
  const Outcome text = run_sape2({"probe", model, "--images", "40", "--probes", "sizes"});
  EXPECT_NE(text.out.find("64×64"), std::string::npos) << text.out;
  expect_mistake(run_sape2({"probe", model, "--probes", "sizes,shift"}), 1, "shift");
}

}  // namespace
}  // namespace sape2::cli::test
