#include "sape2/components.h"
#include "sape2/io/tensor_file.h"

#include "cli/run_sape2.h"
#include "cli/small_model.h"
#include "support/scratch_folder.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <limits>

namespace sape2::cli::test {
namespace {

using nlohmann::json;
using namespace sape2::testing;

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

}  // namespace
}  // namespace sape2::cli::test
