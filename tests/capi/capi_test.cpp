#include "capi/support.h"
#include "sape2_images.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <numeric>

namespace sape2::capi::test {
namespace {

std::vector<char> content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(CInterface, DescribesAModel) {
  const Opened opened;
  sape2_infer_description about = SAPE2_INFER_DESCRIPTION_INIT;
  ASSERT_EQ(sape2_infer_describe(opened.model, &about), SAPE2_INFER_OK);
  EXPECT_EQ(about.classes, kClasses);
  EXPECT_EQ(about.channels, 3);
  EXPECT_EQ(about.image_height, 32);
  EXPECT_EQ(about.patch_width, 4);
  EXPECT_EQ(about.depth, 9);
  EXPECT_EQ(about.width, 192);
  EXPECT_EQ(about.heads, 12);
  EXPECT_EQ(about.prefix, 0);
  EXPECT_STREQ(about.encoding, "sape2-rel-k");
  ASSERT_NE(about.mean, nullptr);
  EXPECT_NEAR(about.mean[0], 0.49, 0.01);
  EXPECT_NEAR(about.deviation[2], 0.26, 0.01);
  EXPECT_GT(about.weight_bytes, 5'000'000u);
  const char* name = nullptr;
  ASSERT_EQ(sape2_infer_class_name(opened.model, 0, &name), SAPE2_INFER_OK);
  EXPECT_STREQ(name, "airplane");
}

TEST(CInterface, SeesTheShip) {
  const Opened opened;
  sape2_infer_image ship = SAPE2_INFER_IMAGE_INIT;
  ASSERT_EQ(sape2_images_read(kShip.c_str(), &ship), SAPE2_INFER_OK) << sape2_images_last_error();
  std::vector<float> logits(kClasses);
  ASSERT_EQ(sape2_infer_run_images(opened.session, &ship, 1, logits.data(), logits.size()),
            SAPE2_INFER_OK)
      << sape2_infer_last_error();
  sape2_infer_guess guesses[kClasses];
  ASSERT_EQ(sape2_infer_rank(opened.model, logits.data(), kClasses, guesses), SAPE2_INFER_OK);
  EXPECT_STREQ(guesses[0].name, "ship");
  EXPECT_NEAR(guesses[0].probability, 0.9109, 0.0005);  // as `sape2 predict` says
  float sum = 0;
  for (int i = 0; i < kClasses; ++i) {
    sum += guesses[i].probability;
    EXPECT_LE(guesses[i].probability, guesses[std::max(i, 1) - 1].probability);
  }
  EXPECT_NEAR(sum, 1, 1e-5);
  sape2_images_free(&ship);
}

TEST(CInterface, AModelInMemoryIsTheSame) {
  const Opened opened;
  const std::vector<char> file = content_of(kModelFile);
  sape2_infer_model* model = nullptr;
  sape2_infer_session* session = nullptr;
  ASSERT_EQ(sape2_infer_model_from_memory(file.data(), file.size(), nullptr, nullptr, &model),
            SAPE2_INFER_OK)
      << sape2_infer_last_error();
  ASSERT_EQ(sape2_infer_session_new(model, nullptr, &session), SAPE2_INFER_OK);
  EXPECT_EQ(sape2_infer_model_free(model), SAPE2_INFER_OK);  // its sessions live on
  const auto bytes = some_bytes(32, 32, 3);
  const sape2_infer_image image = image_of(bytes, 32, 32);
  std::vector<float> one(kClasses), other(kClasses);
  ASSERT_EQ(sape2_infer_run_images(opened.session, &image, 1, one.data(), one.size()),
            SAPE2_INFER_OK);
  ASSERT_EQ(sape2_infer_run_images(session, &image, 1, other.data(), other.size()), SAPE2_INFER_OK);
  EXPECT_EQ(one, other);
  EXPECT_EQ(sape2_infer_session_free(session), SAPE2_INFER_OK);
}

TEST(CInterface, PicturesAreBatchesOfPreparedPixels) {
  const Opened opened;
  const auto wide = some_bytes(50, 90, 3), padded = some_bytes(40, 64, 3);
  sape2_infer_image images[2] = {image_of(wide, 50, 90), image_of(padded, 40, 50)};
  images[1].row_bytes = 64 * 3;
  std::vector<float> pictures(2 * kClasses), batches(2 * kClasses), pixels(2 * 3 * 32 * 32);
  ASSERT_EQ(sape2_infer_run_images(opened.session, images, 2, pictures.data(), pictures.size()),
            SAPE2_INFER_OK)
      << sape2_infer_last_error();
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(sape2_infer_prepare_image(opened.model, &images[i], 0, 0, &pixels[i * 3 * 32 * 32],
                                        3 * 32 * 32),
              SAPE2_INFER_OK)
        << sape2_infer_last_error();
  }
  const sape2_infer_batch batch = batch_of(pixels, 2, 32, 32);
  ASSERT_EQ(sape2_infer_run(opened.session, &batch, batches.data(), batches.size()),
            SAPE2_INFER_OK);
  EXPECT_EQ(pictures, batches);
}

TEST(CInterface, OtherSizesThanTrainedAt) {
  const Opened opened;
  const auto bytes = some_bytes(48, 40, 3);
  const sape2_infer_image image = image_of(bytes, 48, 40);
  std::vector<float> pixels(3 * 48 * 40), logits(kClasses);
  ASSERT_EQ(sape2_infer_prepare_image(opened.model, &image, 48, 40, pixels.data(), pixels.size()),
            SAPE2_INFER_OK);
  const sape2_infer_batch batch = batch_of(pixels, 1, 48, 40);
  ASSERT_EQ(sape2_infer_run(opened.session, &batch, logits.data(), logits.size()), SAPE2_INFER_OK)
      << sape2_infer_last_error();
  for (const float logit : logits) EXPECT_TRUE(std::isfinite(logit));
}

TEST(CInterface, ShowsWhatAttentionIsMadeOf) {
  const Opened opened;
  const std::vector<float> pixels(3 * 32 * 32, 0.25F);
  const sape2_infer_batch batch = batch_of(pixels, 1, 32, 32);
  sape2_infer_inspection* inspection = nullptr;
  ASSERT_EQ(sape2_infer_inspection_new(opened.session, &batch, &inspection), SAPE2_INFER_OK)
      << sape2_infer_last_error();
  sape2_infer_rows rows = SAPE2_INFER_ROWS_INIT;
  const std::int64_t patches[] = {0, 27, 63};
  ASSERT_EQ(sape2_infer_inspection_rows(inspection, 8, patches, 3, &rows), SAPE2_INFER_OK);
  EXPECT_EQ(rows.heads, 12);
  EXPECT_EQ(rows.rows, 8);
  EXPECT_EQ(rows.cols, 8);
  ASSERT_NE(rows.attention, nullptr);
  for (int row = 0; row < 12 * 3; ++row) {
    const float* weights = rows.attention + row * 64;
    EXPECT_NEAR(std::accumulate(weights, weights + 64, 0.0), 1, 1e-4);
  }
  for (int i = 0; i < 12 * 3 * 8; ++i) {
    EXPECT_GE(rows.x.gates[i], 0);
    EXPECT_LE(rows.y.gates[i], 1);
  }
  EXPECT_EQ(rows.gates, nullptr);  // CoPE's
  EXPECT_EQ(rows.is_distance, 0);
  const std::int64_t beyond = 64;
  expect_failure(sape2_infer_inspection_rows(inspection, 0, &beyond, 1, &rows),
                 SAPE2_INFER_BAD_ARGUMENT, "64");
  expect_failure(sape2_infer_inspection_rows(inspection, 9, patches, 1, &rows),
                 SAPE2_INFER_BAD_ARGUMENT, "9");
  EXPECT_EQ(sape2_infer_inspection_free(inspection), SAPE2_INFER_OK);
  expect_failure(sape2_infer_inspection_rows(inspection, 0, patches, 1, &rows),
                 SAPE2_INFER_BAD_HANDLE, "there is no such inspection");
}

}  // namespace
}  // namespace sape2::capi::test
