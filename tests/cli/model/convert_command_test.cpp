#include "sape2/io/model_file.h"
#include "sape2/nn/vit.h"

#include "cli/run_sape2.h"
#include "cli/small_model.h"
#include "support/scratch_folder.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <filesystem>

namespace sape2::cli::test {
namespace {

namespace fs = std::filesystem;
using namespace sape2::testing;

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

}  // namespace
}  // namespace sape2::cli::test
