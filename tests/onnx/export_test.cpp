#include "sape2/onnx/export.h"

#include "sape2/base/error.h"
#include "sape2/nn/presets.h"
#include "sape2/nn/vit.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace sape2::onnx {
namespace {

namespace fs = std::filesystem;

class ExportTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string sentence_of(const ExportOptions& options) const {
    try {
      export_model(model_, folder_ / "model.onnx", options);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  static nn::ModelConfig config() {
    nn::ModelConfig config;
    config.vit = nn::preset("vit-micro").config;
    config.vit.depth = 1;
    return config;
  }

  const nn::ViT model_{config(), {.seed = 1}};
  const fs::path folder_ =
      fs::temp_directory_path() / ("sape2_onnx_test_" + std::to_string(::getpid()));
};

std::string content_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_F(ExportTest, TheSameModelGivesTheSameFile) {
  export_model(model_, folder_ / "a.onnx");
  export_model(model_, folder_ / "b.onnx");
  EXPECT_GT(fs::file_size(folder_ / "a.onnx"), 10000U);
  EXPECT_EQ(content_of(folder_ / "a.onnx"), content_of(folder_ / "b.onnx"));
}

TEST_F(ExportTest, MistakesAreOneSentenceAndLeaveNoFile) {
  EXPECT_EQ(sentence_of({.image_size = nn::Size2d{32, 30}}),
            "images of 32×30 are asked for, which patches of 4×4 do not divide");
  EXPECT_EQ(sentence_of({.image_size = nn::Size2d{0, 32}}),
            "images of 0×32 are asked for, which patches of 4×4 do not divide");
  EXPECT_EQ(sentence_of({.opset = 16}), "opset is 16; one from 17 to 23 was expected");
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(ExportTest, AFileThatCannotBeWrittenIsNamed) {
  try {
    export_model(model_, folder_ / "nowhere" / "model.onnx");
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("nowhere"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace sape2::onnx
