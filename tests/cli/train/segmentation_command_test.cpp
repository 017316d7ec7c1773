#include "sape2/components.h"
#include "sape2/data/mask.h"
#include "sape2/data/shapes.h"
#include "sape2/io/model_file.h"
#include "sape2/nn/vit.h"

#include "cli/run_sape2.h"
#include "support/file_bytes.h"
#include "support/scratch_folder.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace sape2::cli::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using namespace sape2::testing;

const std::vector<std::string> kTiny{
    "--depth",       "1",  "--width",      "16", "--heads",  "2", "--train-images", "64",
    "--test-images", "16", "--batch-size", "32", "--epochs", "1", "--data",         "shapes"};

Outcome run_tiny(std::vector<std::string> arguments) {
  arguments.insert(arguments.end(), kTiny.begin(), kTiny.end());
  return run_sape2(arguments);
}

fs::path save_model(const ScratchFolder& folder) {
  nn::ModelConfig config;
  config.task = "segmentation";
  config.vit.depth = 1;
  config.vit.width = 16;
  config.vit.heads = 2;
  config.vit.classes = 2;
  config.class_names = {"background", "object"};
  const auto path = folder / "best.safetensors";
  io::save_model(path, nn::ViT(config));
  return path;
}

TEST(SegmentationCommands, TrainEvaluateAndPredict) {
  const ScratchFolder folder;
  const std::string run = folder / "run";
  const Outcome trained = run_tiny({"train", "--task", "segmentation", "--out", run});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_NE(trained.out.find("best mean IoU"), std::string::npos) << trained.out;
  EXPECT_NE(trained.out.find("boundary F1"), std::string::npos) << trained.out;

  const Outcome evaluated =
      run_sape2({"eval", run, "--data", "shapes", "--images", "16", "--json"});
  ASSERT_EQ(evaluated.exit_code, 0) << evaluated.err;
  const json figures = json::parse(evaluated.out);
  EXPECT_EQ(figures["classes"], (json{"background", "object"}));
  EXPECT_EQ(figures["IoU"].size(), 2u);
  EXPECT_EQ(figures["confusion"][0][0].get<int>() + figures["confusion"][0][1].get<int>() +
                figures["confusion"][1][0].get<int>() + figures["confusion"][1][1].get<int>(),
            16 * 32 * 32);
  EXPECT_GT(figures["mean IoU"].get<double>(), 0);
  const Outcome text =
      run_sape2({"eval", run, "--data", "shapes", "--images", "8", "--size", "48"});
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_TRUE(text.out.starts_with("mean IoU ")) << text.out;
  EXPECT_NE(text.out.find("\nIoU of object "), std::string::npos) << text.out;

  const fs::path picture = folder / "picture.png";
  data::write_png(picture, {30, 50, 3, std::vector<std::uint8_t>(30 * 50 * 3, 77)});
  const std::string out = folder / "masks";
  const Outcome predicted =
      run_sape2({"predict", run, "shapes:test:0-1", picture, "--out", out, "--json"});
  ASSERT_EQ(predicted.exit_code, 0) << predicted.err;
  const json seen = json::parse(predicted.out);
  ASSERT_EQ(seen.size(), 3u);
  EXPECT_TRUE(seen[0].contains("mean IoU"));
  EXPECT_FALSE(seen[2].contains("mean IoU"));
  // In the file's own size, which patches do not divide; class numbers as pixels.
  const data::Image mask = data::read_mask(fs::path(out) / "picture-mask.png");
  EXPECT_EQ(mask.height, 30);
  EXPECT_EQ(mask.width, 50);
  std::size_t objects = 0;
  for (const auto pixel : mask.pixels) objects += pixel == 1;
  EXPECT_NEAR(seen[2]["classes"][1]["share"].get<double>(),
              static_cast<double>(objects) / static_cast<double>(mask.pixels.size()), 1e-9);
  EXPECT_EQ(data::read_image(fs::path(out) / "shapes_test_0-overlay.png").width, 32);
}

// Among the images are masks and overlays of an earlier call.
TEST(SegmentationCommands, PredictKeepsTheFilesThatItReads) {
  const ScratchFolder folder;
  const std::string model = save_model(folder);
  const data::Image image{30, 50, 3, std::vector<std::uint8_t>(30 * 50 * 3, 77)};
  for (const char* name : {"cat.png", "cat-overlay.png"}) data::write_png(folder / name, image);
  const std::string before = file_bytes(folder / "cat-overlay.png");
  const Outcome outcome = run_sape2(
      {"predict", model, folder / "cat.png", folder / "cat-overlay.png", "--out", folder.path()});
  EXPECT_EQ(outcome.exit_code, 1) << outcome.out;
  EXPECT_NE(outcome.err.find("cat-overlay.png\": this command reads that file"), std::string::npos)
      << outcome.err;
  EXPECT_EQ(file_bytes(folder / "cat-overlay.png"), before);
  EXPECT_FALSE(fs::exists(folder / "cat-mask.png"));
  EXPECT_TRUE(fs::exists(folder / "cat-overlay-mask.png")) << outcome.err;
}

/// A few images with masks of a box, of a size that no patch divides.
std::string save_scenes(const ScratchFolder& folder) {
  const fs::path scenes = folder / "scenes";
  for (const char* part : {"images", "masks"}) fs::create_directories(scenes / part);
  std::ofstream(scenes / "classes.txt") << "background\nobject\n";
  for (int i = 0; i < 10; ++i) {
    data::Image image{37, 41, 3, std::vector<std::uint8_t>(37 * 41 * 3, 90)};
    data::Image mask{37, 41, 1, std::vector<std::uint8_t>(37 * 41, 0)};
    for (std::size_t at = 300; at < 700; ++at) {
      mask.pixels[at] = 1;
      image.pixels[3 * at] = 200;
    }
    const std::string name = "scene" + std::to_string(i) + ".png";
    data::write_png(scenes / "images" / name, image);
    data::write_png(scenes / "masks" / name, mask);
  }
  return "folder:" + scenes.native();
}

TEST(SegmentationCommands, FinerPatchesAndLargerImagesComeFromTheCommandLine) {
  const ScratchFolder folder;
  const std::string scenes = save_scenes(folder);
  const std::vector<std::string> small{"--depth", "1",    "--width",      "16", "--heads",  "2",
                                       "--data",  scenes, "--batch-size", "4",  "--epochs", "1"};
  const auto train = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), small.begin(), small.end());
    return run_sape2(arguments);
  };
  const Outcome trained =
      train({"train", "--task", "segmentation", "--image-size", "96", "--patch-size", "6",
             "--encoding", "sape2-k+ape", "--out", folder / "run"});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const auto config = io::read_model_config(folder / "run" / "last.safetensors");
  EXPECT_EQ(config.vit.rows(), 16);
  EXPECT_EQ(config.vit.image_size, (nn::Size2d{96, 96}));
  // Data of any size are read at the model's.
  const Outcome evaluated = run_sape2({"eval", folder / "run", "--data", scenes, "--json"});
  ASSERT_EQ(evaluated.exit_code, 0) << evaluated.err;
  EXPECT_EQ(json::parse(evaluated.out)["height"], 96);
  // The preset itself, with patches of 8 at 128×128: the usual size of such data.
  const Outcome usual = train({"train", "--task", "segmentation", "--model", "vit-compact",
                               "--patch-size", "8", "--out", folder / "usual"});
  ASSERT_EQ(usual.exit_code, 0) << usual.err;
  EXPECT_EQ(io::read_model_config(folder / "usual" / "last.safetensors").vit.rows(), 16);
  const Outcome fine = run_tiny({"train", "--patch-size", "2", "--out", folder / "fine"});
  ASSERT_EQ(fine.exit_code, 0) << fine.err;
  EXPECT_EQ(io::read_model_config(folder / "fine" / "last.safetensors").vit.rows(), 16);
}

TEST(SegmentationCommands, CompareHasBothFiguresWithDifferences) {
  const ScratchFolder folder;
  const std::string out = folder / "compared";
  const Outcome outcome = run_tiny({"compare", "--task", "segmentation", "--encodings", "ape,none",
                                    "--baseline", "ape", "--seeds", "2", "--out", out});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  std::ifstream file(fs::path(out) / "table.md");
  std::ostringstream table;
  table << file.rdbuf();
  for (const char* words : {"| mean IoU % | less ape |", "| boundary F1 % | boundary F1 less ape |",
                            "| pixel accuracy % |", "segmentation of shapes", "2 seeds)"}) {
    EXPECT_NE(table.str().find(words), std::string::npos) << words << "\n" << table.str();
  }
  const json results = json::parse(std::ifstream(fs::path(out) / "results.json"));
  EXPECT_EQ(results["rows"][1]["boundary F1 difference"]["seeds"].size(), 2u);
  EXPECT_TRUE(results["rows"][0]["mean IoU"]["mean"].is_number());
  // Read again, the file gives the same table.
  const std::string again = folder / "again";
  ASSERT_EQ(run_sape2({"compare", "--from", out, "--out", again}).exit_code, 0);
  std::ifstream copy(fs::path(again) / "table.md");
  std::ostringstream same;
  same << copy.rdbuf();
  EXPECT_EQ(same.str(), table.str());
}

TEST(SegmentationCommands, ProbesKnowMasks) {
  const ScratchFolder folder;
  const Outcome outcome = run_sape2({"probe", save_model(folder), "--images", "6", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const json probes = json::parse(outcome.out);
  EXPECT_TRUE(probes[0]["tables"][0]["rows"][0].contains("mean IoU %"));
  EXPECT_TRUE(probes[1]["tables"][0]["rows"][0].contains("boundary F1 %"));
  const json& still = probes[2]["tables"][0]["rows"][0];
  EXPECT_EQ(still["same answer %"], 100);
  EXPECT_NE(probes[4]["reading"].get<std::string>().find("Left out"), std::string::npos);
}

TEST(SegmentationCommands, WhatCannotServeAModelSaysSo) {
  const ScratchFolder folder;
  const std::string model = save_model(folder);
  for (const auto& arguments : std::vector<std::vector<std::string>>{
           {"export", model, "-o", folder / "a.onnx"},
           {"eval", model, "--data", "shapes", "--runtime", "infer"}}) {
    expect_mistake(run_sape2(arguments), 1, "the model's task is segmentation");
  }
  EXPECT_FALSE(fs::exists(folder / "a.onnx"));
}

TEST(SegmentationCommands, ExplainAndExportOfThePageTakeThem) {
  const ScratchFolder folder;
  const std::string model = save_model(folder), figure = folder / "a.svg";
  const Outcome drawn = run_sape2({"explain", model, "shapes:test:0", "-o", figure});
  EXPECT_EQ(drawn.exit_code, 0) << drawn.err;
#if SAPE2_HAVE_EXPLORER
  const std::string page = folder / "page";
  const Outcome written = run_sape2({"serve", model, "--images", "2", "--export", page});
  EXPECT_EQ(written.exit_code, 0) << written.err;
  const json files = json::parse(std::ifstream(fs::path(page) / "explorer.json"));
  EXPECT_EQ(files["images"]["name"], "shapes");
  // A folder of images with masks is read as one.
  const Outcome scenes =
      run_sape2({"serve", model, "--data", save_scenes(folder), "--images", "1", "--export", page});
  EXPECT_EQ(scenes.exit_code, 0) << scenes.err;
  // A model that lies in the page is not taken away to write it anew.
  const fs::path own = fs::path(page) / "models/0.safetensors";
  for (const std::string& again : {page, page + "/"}) {
    expect_mistake(run_sape2({"serve", own, "--export", again}), 1, "move the model elsewhere");
    EXPECT_TRUE(fs::exists(own));
  }
#endif
}

TEST(SegmentationCommands, MistakesAreOneSentence) {
  const ScratchFolder folder;
  const std::string run = folder / "run", model = save_model(folder);
  expect_mistake(run_sape2({"train", "--task", "segmentation", "--data", "shapes", "--recipe",
                            "strong", "--out", run}),
                 1, "which the task segmentation does not know");
  expect_mistake(run_sape2({"train", "--task", "detection", "--data", "shapes", "--out", run}), 1,
                 "the task \"detection\" is not known");
  expect_mistake(run_sape2({"predict", model, "shapes:test:0", "--sheet", folder / "a.png"}), 1,
                 "--out FOLDER");
  const std::string masks = folder / "masks";
  expect_mistake(run_sape2({"predict", model, folder / "none.png", "--out", masks}), 1, "none.png");
  EXPECT_FALSE(fs::exists(masks));
  EXPECT_FALSE(fs::exists(run));
}

TEST(SegmentationCommands, DataAreDescribedWithMasks) {
  const Outcome outcome = run_sape2({"data", "info", "shapes", "--masks", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(json::parse(outcome.out)["classes"][1]["name"], "object");
}

}  // namespace
}  // namespace sape2::cli::test
