#include "sape2/onnx/export.h"

#include "sape2/base/error.h"
#include "sape2/nn/presets.h"
#include "sape2/nn/vit.h"

#include "support/error_text.h"
#include "support/file_bytes.h"
#include "support/scratch_folder.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace sape2::onnx {
namespace {

namespace fs = std::filesystem;
using namespace sape2::testing;

class ExportTest : public ::testing::Test {
 protected:
  std::string error_of(const ExportOptions& options) const {
    return error_text([&] { export_model(model_, folder_ / "model.onnx", options); });
  }

  static nn::ModelConfig config() {
    nn::ModelConfig config;
    config.vit = nn::preset("vit-micro").config;
    config.vit.depth = 1;
    return config;
  }

  const nn::ViT model_{config(), {.seed = 1}};
  const ScratchFolder folder_;
};

TEST_F(ExportTest, TheSameModelGivesTheSameFile) {
  export_model(model_, folder_ / "a.onnx");
  export_model(model_, folder_ / "b.onnx");
  EXPECT_GT(fs::file_size(folder_ / "a.onnx"), 10000U);
  EXPECT_EQ(file_bytes(folder_ / "a.onnx"), file_bytes(folder_ / "b.onnx"));
}

TEST_F(ExportTest, MistakesAreOneSentenceAndLeaveNoFile) {
  EXPECT_EQ(error_of({.image_size = nn::Size2d{32, 30}}),
            "images of 32×30 are asked for, which patches of 4×4 do not divide");
  EXPECT_EQ(error_of({.image_size = nn::Size2d{0, 32}}),
            "images of 0×32 are asked for, which patches of 4×4 do not divide");
  EXPECT_EQ(error_of({.opset = 16}), "opset is 16; one from 17 to 23 was expected");
  EXPECT_TRUE(fs::is_empty(folder_.path()));
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
