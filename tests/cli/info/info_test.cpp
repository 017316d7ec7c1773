#include "sape2/io/model_file.h"
#include "sape2/io/tensor_file.h"
#include "sape2/nn/encoding_definition.h"
#include "sape2/nn/presets.h"
#include "sape2/nn/vit.h"
#include "sape2/version.h"

#include "cli/run_sape2.h"
#include "support/scratch_folder.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <limits>

namespace sape2::cli::test {
namespace {

using nlohmann::json;
using namespace sape2::testing;

json info_json(std::vector<std::string> arguments, const Environment& variables = {}) {
  arguments.insert(arguments.begin(), {"info", "--json"});
  const Outcome outcome = run_sape2(arguments, variables);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  return json::parse(outcome.out);
}

void expect_parts(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    EXPECT_NE(text.find(part), std::string::npos) << "\"" << part << "\" is not in:\n" << text;
  }
}

std::filesystem::path save_small_model(const ScratchFolder& folder) {
  nn::ModelConfig config;
  config.vit.image_size = {8, 12};
  config.vit.depth = 1;
  config.vit.width = 24;
  config.vit.heads = 2;
  config.vit.classes = 3;
  config.encoding = nn::EncodingSpec::parse("sape2-k[gain=-1]+ape");
  config.class_names = {"cat", "dög", "\x1b[31mred\nline"};
  config.mean = {0.5, 0.25, 0.125};
  config.deviation = {1, 2, 4};
  const nn::ViT model(config);
  const auto path = folder / "model.safetensors";
  io::save_model(path, model, {io::WeightType::bfloat16, {{"epoch", "12"}}});
  return path;
}

TEST(Info, ShowsTheMachineAndWhatThereIs) {
  const Outcome outcome = run_sape2({"info"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.err, "");
  expect_parts(outcome.out, {"sape2 " SAPE2_VERSION, "LibTorch", "BLAS", "thread", "CPU", "CUDA",
                             "drawing", "download", "images", "server"});
  for (const auto& definition : nn::encoding_definitions()) {
    expect_parts(outcome.out, {"  " + definition.name + " ", definition.summary});
  }
  for (const auto& preset : nn::presets()) expect_parts(outcome.out, {preset.name, preset.summary});
}

TEST(Info, JsonSaysTheSame) {
  const json info = info_json({});
  EXPECT_EQ(info["version"], SAPE2_VERSION);
  EXPECT_GE(info["blas"]["threads"], 1);
  EXPECT_GT(info["blas"]["gflops_per_thread"], 0);
  EXPECT_GT(info["cpu"]["gflops_per_core"], 0);
  EXPECT_FALSE(info["settings"].empty());
  EXPECT_TRUE(info["cuda"]["devices"].is_array());
  ASSERT_EQ(info["encodings"].size(), nn::encoding_definitions().size());
  EXPECT_EQ(info["encodings"][0]["name"], nn::encoding_definitions()[0].name);
  ASSERT_EQ(info["presets"].size(), nn::presets().size());
  for (std::size_t i = 0; i < nn::presets().size(); ++i) {
    nn::ModelConfig config;
    config.vit = nn::presets()[i].config;
    EXPECT_EQ(info["presets"][i]["parameters"], nn::parameter_count(config));
  }
  for (const json& component : info["components"]) {
    EXPECT_TRUE(component["present"].is_boolean());
    EXPECT_FALSE(component["packages"].get<std::string>().empty());
  }
}

TEST(Info, ThreadsReachLibTorchAndItsBlas) {
  const json one = info_json({"--threads", "1"});
  EXPECT_EQ(one["threads"], 1);
  EXPECT_EQ(one["blas"]["threads"], 1);
  EXPECT_EQ(info_json({"--threads", "3"})["threads"], 3);
  const json by_default = info_json({});
  EXPECT_EQ(by_default["threads"], by_default["cpu"]["cores"]);
}

TEST(Info, WarnsOfTheReferenceBlas) {
  const char* folder = "/usr/lib/x86_64-linux-gnu/blas";
  if (!std::filesystem::exists(std::string(folder) + "/libblas.so.3")) {
    GTEST_SKIP() << "the reference BLAS is not installed";
  }
  const Environment with_reference = {{"LD_LIBRARY_PATH", folder}};
  if (!info_json({}, with_reference)["blas"]["slow"]) {
    GTEST_SKIP() << "this LibTorch does not take its BLAS from libblas.so.3";
  }
  expect_parts(run_sape2({"info"}, with_reference).out,
               {"warning: this is the reference BLAS", "libopenblas0-pthread"});
}

TEST(Info, WarnsOfKernelsThatAreNarrowerThanTheCpu) {
  const Environment narrow = {{"OPENBLAS_CORETYPE", "Prescott"}};
  const json info = info_json({}, narrow);
  if (info["blas"]["core"] != "Prescott" || info["cpu"]["features"].size() < 2) {
    GTEST_SKIP() << "no OpenBLAS, or a CPU with nothing wider";
  }
  EXPECT_EQ(info["blas"]["narrow"], true);
  expect_parts(run_sape2({"info"}, narrow).out,
               {"Prescott kernels", "OPENBLAS_CORETYPE=Prescott, set by you",
                "warning: OpenBLAS runs its Prescott kernels"});
}

TEST(Info, DescribesAModelFile) {
  ScratchFolder folder;
  const std::string path = save_small_model(folder);
  const Outcome outcome = run_sape2({"info", path});
  EXPECT_EQ(outcome.exit_code, 0);
  expect_parts(outcome.out, {path, "sape2-k[gain=-1]+ape", "1 of width 24, 2 heads", "8×12",
                             "patches of 4×4 (grid 2×3)", "BF16", "0.5, 0.25, 0.125", "1, 2, 4",
                             "3: cat, dög, \\x1b[31mred\\x0aline", "epoch"});
  EXPECT_EQ(outcome.out.find('\x1b'), std::string::npos);

  const json info = info_json({path});
  EXPECT_EQ(info["config"]["encoding"], "sape2-k[gain=-1]+ape");
  EXPECT_EQ(info["config"]["class_names"][1], "dög");
  EXPECT_EQ(info["parameters"], nn::parameter_count(io::read_model_config(path)));
  EXPECT_EQ(info["metadata"], (json{{"epoch", "12"}}));
}

TEST(Info, DescribesOneEncoding) {
  const Outcome outcome = run_sape2({"info", "--encoding", "sape2-k[ gain = -1.0 ]+ape"});
  EXPECT_EQ(outcome.exit_code, 0);
  expect_parts(outcome.out, {"sape2-k[gain=-1]+ape", "suffix|between", "gate-scale"});
  EXPECT_EQ(info_json({"--encoding", "rope"})["definition"]["name"], "rope");
  expect_mistake(run_sape2({"info", "--encoding", "ropee"}), 1, "\"rope\"");
}

TEST(Info, EachUnusableFileGetsASentence) {
  ScratchFolder folder;
  expect_mistake(run_sape2({"info", folder / "absent"}), 1, "absent\": there is no such file");
  expect_mistake(run_sape2({"info", folder.path()}), 1, "holds no best.safetensors");
  expect_mistake(run_sape2({"info", SAPE2_GOLDEN_DIR "/cope.safetensors"}), 1,
                 "no SaPE² configuration");
  std::ofstream(folder / "text") << "this is no safetensors file";
  expect_mistake(run_sape2({"info", folder / "text"}), 1, "is not a valid safetensors file");
}

TEST(Info, DescribesTheModelOfARun) {
  const ScratchFolder folder;
  std::filesystem::rename(save_small_model(folder), folder / "best.safetensors");
  const Outcome outcome = run_sape2({"info", (folder / "").string()});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  expect_parts(outcome.out, {"best.safetensors"});
}

TEST(Info, RefusesWhatNoOtherCommandTakes) {
  ScratchFolder folder;
  auto tensors = io::load_tensors(save_small_model(folder));
  const auto metadata = io::SafetensorsFile::open(save_small_model(folder)).metadata();
  const std::string broken = folder / "broken";
  tensors["head.bias"][1] = std::numeric_limits<float>::quiet_NaN();
  io::save_tensors(broken, tensors, metadata);
  expect_mistake(run_sape2({"info", broken}), 1, "\"head.bias\" holds a NaN or an infinity at [1]");
  tensors.erase("head.bias");
  io::save_tensors(broken, tensors, metadata);
  expect_mistake(run_sape2({"info", broken}), 1, "has no tensor \"head.bias\"");
}

}  // namespace
}  // namespace sape2::cli::test
