// A model for segmentation in the runtime: the masks are those of LibTorch.
#include "sape2/infer/pixel_logits.h"
#include "sape2/infer/prediction.h"
#include "sape2/infer/session.h"

#include "infer/support.h"
#include "support/error_text.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

namespace sape2::infer::testing {
namespace {

using namespace sape2::testing;

constexpr double kTolerance = 2e-5;

nn::ModelConfig mask_config(nn::Pooling pooling, std::int64_t registers) {
  nn::ModelConfig config = small_config("sape2-rel-k");
  config.task = "segmentation";
  config.vit.classes = 4;
  config.vit.pooling = pooling;
  config.vit.registers = registers;
  return config;
}

// The logits of LibTorch's pixels, (classes, height, width).
at::Tensor expected_logits(const SavedModel& saved, const std::vector<float>& pixels,
                           nn::Size2d image, nn::Size2d size) {
  const at::NoGradGuard no_grad;
  const at::Tensor features =
      saved.model->forward_features(at::tensor(pixels).view({1, 3, image.height, image.width}));
  return saved.model->forward_pixels(features, {image.height / 4, image.width / 4}, size)[0];
}

TEST(Segmentation, PixelsAreThoseOfLibTorch) {
  for (const nn::Pooling pooling :
       {nn::Pooling::mean, nn::Pooling::sequence, nn::Pooling::class_token}) {
    const SavedModel saved(mask_config(pooling, pooling == nn::Pooling::mean ? 0 : 2));
    Session session(Model::open(saved.path), {.threads = 2});
    for (const nn::Size2d image : {nn::Size2d{12, 20}, {24, 8}, {4, 4}}) {
      SCOPED_TRACE(nn::to_string(pooling) + " " + std::to_string(image.height));
      const auto pixels = random_numbers(3 * image.height * image.width, 5);
      const std::vector<float> patches = session.run({pixels.data(), 1, image.height, image.width});
      const nn::Size2d grid{image.height / 4, image.width / 4};
      const PixelLogits logits(patches, grid, 4);
      for (const nn::Size2d size : {image, nn::Size2d{31, 17}, grid}) {
        const at::Tensor expected = expected_logits(saved, pixels, image, size);
        std::vector<float> all;
        for (std::int64_t y = 0; y < size.height; ++y) {
          for (std::int64_t x = 0; x < size.width; ++x) {
            for (const float logit : logits.at(size, y, x)) all.push_back(logit);
          }
        }
        const at::Tensor wanted = expected.permute({1, 2, 0}).contiguous();
        EXPECT_LT(relative_difference(
                      all, {wanted.data_ptr<float>(), wanted.data_ptr<float>() + wanted.numel()}),
                  kTolerance);
        const MaskPrediction found = logits.mask(size);
        const at::Tensor classes = expected.argmax(0);
        std::int64_t others = 0;
        for (std::int64_t i = 0; i < classes.numel(); ++i) {
          others += classes.flatten()[i].item<std::int64_t>() !=
                    found.mask.pixels[static_cast<std::size_t>(i)];
        }
        EXPECT_EQ(others, 0);
        double sum = 0;
        for (const double share : found.shares) sum += share;
        EXPECT_NEAR(sum, 1, 1e-12);
        EXPECT_NEAR(found.shares[2],
                    static_cast<double>(classes.eq(2).sum().item<std::int64_t>()) /
                        static_cast<double>(classes.numel()),
                    1e-12);
      }
    }
  }
}

TEST(Segmentation, BatchesAndBfloat16) {
  const SavedModel saved(mask_config(nn::Pooling::mean, 0), io::WeightType::bfloat16);
  const auto pixels = random_numbers(std::int64_t{3} * 3 * 12 * 20, 6);
  Session session(Model::open(saved.path), {.threads = 2});
  const std::vector<float> together = session.run({pixels.data(), 3, 12, 20});
  ASSERT_EQ(together.size(), 3U * 15 * 4);
  const std::vector<float> last = session.run({pixels.data() + 2 * 3 * 12 * 20, 1, 12, 20});
  EXPECT_EQ(last, std::vector<float>(together.end() - 15 * 4, together.end()));
  Session rounded(Model::open(saved.path, {.arithmetic = Arithmetic::bfloat16}), {.threads = 1});
  EXPECT_LT(relative_difference(rounded.run({pixels.data(), 3, 12, 20}), together), 0.1);
}

TEST(Segmentation, MistakesAreOneSentence) {
  const SavedModel saved(mask_config(nn::Pooling::mean, 0));
  Session session(Model::open(saved.path), {.threads = 1});
  const auto pixels = random_numbers(std::int64_t{3} * 12 * 20, 7);
  std::vector<float> few(4);
  EXPECT_EQ(error_text([&] {
              session.run({pixels.data(), 1, 12, 20}, few);
            }),
            "there is room for 4 logits, expected 60: one for each image, patch and class");
  const data::Image picture{12, 20, 3, std::vector<std::uint8_t>(720)};
  EXPECT_NE(error_text([&] { predict(session, picture); }).find("the model's task is segmentation"),
            std::string::npos);
  std::vector<float> logits(60);
  EXPECT_NE(error_text([&] {
              PixelLogits(logits, {3, 4}, 4);
            }).find("3×4 patches"),
            std::string::npos);
  EXPECT_EQ(error_text([&] {
              (void)PixelLogits(logits, {3, 5}, 4).at({6, 10}, 2, 10);
            }),
            "there is no pixel 2,10; rows are 0 … 5 and columns 0 … 9 here");
  logits[7] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THROW(PixelLogits(logits, {3, 5}, 4), NotFinite);
  // The largest numbers there are make no others.
  logits.assign(60, -std::numeric_limits<float>::max());
  logits[5] = std::numeric_limits<float>::max();
  const MaskPrediction extreme = PixelLogits(logits, {3, 5}, 4).mask({9, 15});
  EXPECT_GT(extreme.shares[1], 0);
}

// What would be read or written beyond the logits, or wrap around on the way.
TEST(Segmentation, SizesThatAreNoneAreRefused) {
  const std::vector<float> few(4);
  constexpr std::int64_t kWraps = std::int64_t{1} << 32;
  for (const auto& [grid, classes] :
       {std::pair{nn::Size2d{-2, -2}, std::int64_t{1}}, {{-1, 4}, -1}, {{2, -2}, -1}}) {
    EXPECT_NE(error_text([&, grid = grid, classes = classes] {
                PixelLogits(few, grid, classes);
              }).find("has no logits"),
              std::string::npos);
  }
  for (const auto& [grid, classes] :
       {std::pair{nn::Size2d{0, 3}, std::int64_t{4}}, {{2, 2}, 0}, {{kWraps, kWraps}, 4}}) {
    EXPECT_NE(error_text([&, grid = grid, classes = classes] {
                PixelLogits({}, grid, classes);
              }).find("has no logits"),
              std::string::npos);
  }
  const PixelLogits logits(few, {2, 2}, 1);
  for (const nn::Size2d size :
       {nn::Size2d{0, 4}, {4, 0}, {-1, 4}, {kWraps, kWraps}, {9000, 9000}}) {
    EXPECT_NE(error_text([&] { (void)logits.mask(size); }).find("cannot be made"),
              std::string::npos);
  }
  EXPECT_NE(error_text([&] {
              (void)PixelLogits(std::vector<float>(257), {1, 1}, 257).mask({2, 2});
            }).find("cannot number 257 classes"),
            std::string::npos);
}

}  // namespace
}  // namespace sape2::infer::testing
