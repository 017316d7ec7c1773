#include "capi/support.h"
#include "sape2_images.h"

#include <limits>

// What callers do wrong: each gets a code and a sentence, and outputs stay as they were.
namespace sape2::capi::test {
namespace {

constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();

TEST(CMistakes, Files) {
  sape2_infer_model* model = nullptr;
  expect_failure(sape2_infer_model_open("none.safetensors", nullptr, &model), SAPE2_INFER_BAD_FILE,
                 "none.safetensors");
  expect_failure(sape2_infer_model_open(kShip.c_str(), nullptr, &model), SAPE2_INFER_BAD_FILE,
                 "ship.png");
  expect_failure(sape2_infer_model_open(SAPE2_SOURCE_DIR, nullptr, &model), SAPE2_INFER_BAD_FILE,
                 SAPE2_SOURCE_DIR);
  expect_failure(sape2_infer_model_from_memory("garbage", 7, nullptr, nullptr, &model),
                 SAPE2_INFER_BAD_FILE, "the model in memory");
  expect_failure(sape2_infer_model_from_memory("", 0, "n\x1b[31m", nullptr, &model),
                 SAPE2_INFER_BAD_FILE, "n\\x1b[31m");
  sape2_infer_model_options options = SAPE2_INFER_MODEL_OPTIONS_INIT;
  options.arithmetic = 7;
  expect_failure(sape2_infer_model_open(kModelFile.c_str(), &options, &model),
                 SAPE2_INFER_BAD_ARGUMENT, "the arithmetic is 7");
  EXPECT_EQ(model, nullptr);
}

TEST(CMistakes, HandlesThatWereFreed) {
  sape2_infer_model* model = nullptr;
  sape2_infer_session* session = nullptr;
  ASSERT_EQ(sape2_infer_model_open(kModelFile.c_str(), nullptr, &model), SAPE2_INFER_OK);
  ASSERT_EQ(sape2_infer_session_new(model, nullptr, &session), SAPE2_INFER_OK);
  ASSERT_EQ(sape2_infer_session_free(session), SAPE2_INFER_OK);
  ASSERT_EQ(sape2_infer_model_free(model), SAPE2_INFER_OK);
  expect_failure(sape2_infer_session_free(session), SAPE2_INFER_BAD_HANDLE, "was freed before");
  expect_failure(sape2_infer_model_free(model), SAPE2_INFER_BAD_HANDLE, "was freed before");
  sape2_infer_description about = SAPE2_INFER_DESCRIPTION_INIT;
  expect_failure(sape2_infer_describe(model, &about), SAPE2_INFER_BAD_HANDLE,
                 "there is no such model");
  sape2_infer_session* another = nullptr;
  expect_failure(sape2_infer_session_new(model, nullptr, &another), SAPE2_INFER_BAD_HANDLE,
                 "there is no such model");
  const std::vector<float> pixels(3 * 32 * 32);
  const sape2_infer_batch batch = batch_of(pixels, 1, 32, 32);
  float logits[kClasses];
  expect_failure(sape2_infer_run(session, &batch, logits, kClasses), SAPE2_INFER_BAD_HANDLE,
                 "there is no such session");
  // Nor is anything else taken for a handle.
  int thing = 0;
  expect_failure(
      sape2_infer_run(reinterpret_cast<sape2_infer_session*>(&thing), &batch, logits, kClasses),
      SAPE2_INFER_BAD_HANDLE, "there is no such session");
}

TEST(CMistakes, HandlesOfAnotherKind) {
  const Opened opened;
  const auto as_model = reinterpret_cast<sape2_infer_model*>(opened.session);
  const auto as_session = reinterpret_cast<sape2_infer_session*>(opened.model);
  const auto as_inspection = reinterpret_cast<sape2_infer_inspection*>(opened.session);
  sape2_infer_description about = SAPE2_INFER_DESCRIPTION_INIT;
  expect_failure(sape2_infer_describe(as_model, &about), SAPE2_INFER_BAD_HANDLE,
                 "there is no such model");
  expect_failure(sape2_infer_session_free(as_session), SAPE2_INFER_BAD_HANDLE, "");
  sape2_infer_rows rows = SAPE2_INFER_ROWS_INIT;
  const std::int64_t patch = 0;
  expect_failure(sape2_infer_inspection_rows(as_inspection, 0, &patch, 1, &rows),
                 SAPE2_INFER_BAD_HANDLE, "there is no such inspection");
  EXPECT_EQ(sape2_infer_describe(opened.model, &about), SAPE2_INFER_OK);  // nothing was freed
}

// Every pointer, one at a time, with everything else as it should be.
TEST(CMistakes, NullPointers) {
  const Opened opened;
  const std::vector<float> pixels(3 * 32 * 32);
  const sape2_infer_batch batch = batch_of(pixels, 1, 32, 32);
  const auto bytes = some_bytes(32, 32, 3);
  const sape2_infer_image image = image_of(bytes, 32, 32);
  sape2_infer_model* model = nullptr;
  sape2_infer_session* session = nullptr;
  sape2_infer_inspection* inspection = nullptr;
  float logits[kClasses] = {};
  float room[3 * 32 * 32];
  sape2_infer_guess guess;
  const char* name = nullptr;
  const std::int64_t patch = 0;
  sape2_infer_rows rows = SAPE2_INFER_ROWS_INIT;
  ASSERT_EQ(sape2_infer_inspection_new(opened.session, &batch, &inspection), SAPE2_INFER_OK);
  const auto expect_null = [](sape2_infer_status status, const std::string& argument) {
    expect_failure(status, SAPE2_INFER_BAD_ARGUMENT, argument + " is null");
  };
  expect_null(sape2_infer_model_open(nullptr, nullptr, &model), "path");
  expect_null(sape2_infer_model_open(kModelFile.c_str(), nullptr, nullptr), "model");
  expect_null(sape2_infer_model_from_memory(nullptr, 9, nullptr, nullptr, &model), "file");
  expect_null(sape2_infer_model_from_memory("x", 1, nullptr, nullptr, nullptr), "model");
  expect_null(sape2_infer_describe(opened.model, nullptr), "description");
  expect_null(sape2_infer_describe(nullptr, nullptr), "model");
  expect_null(sape2_infer_class_name(opened.model, 0, nullptr), "name");
  expect_null(sape2_infer_class_name(nullptr, 0, &name), "model");
  expect_null(sape2_infer_session_new(nullptr, nullptr, &session), "model");
  expect_null(sape2_infer_session_new(opened.model, nullptr, nullptr), "session");
  expect_null(sape2_infer_run(nullptr, &batch, logits, kClasses), "session");
  expect_null(sape2_infer_run(opened.session, nullptr, logits, kClasses), "images");
  expect_null(sape2_infer_run(opened.session, &batch, nullptr, kClasses), "logits");
  expect_null(sape2_infer_run_images(nullptr, &image, 1, logits, kClasses), "session");
  expect_null(sape2_infer_run_images(opened.session, nullptr, 1, logits, kClasses), "images");
  expect_null(sape2_infer_run_images(opened.session, &image, 1, nullptr, kClasses), "logits");
  expect_null(sape2_infer_prepare_image(nullptr, &image, 0, 0, room, 3072), "model");
  expect_null(sape2_infer_prepare_image(opened.model, nullptr, 0, 0, room, 3072), "image");
  expect_null(sape2_infer_prepare_image(opened.model, &image, 0, 0, nullptr, 3072), "pixels");
  expect_null(sape2_infer_rank(nullptr, logits, 1, &guess), "model");
  expect_null(sape2_infer_rank(opened.model, nullptr, 1, &guess), "logits");
  expect_null(sape2_infer_rank(opened.model, logits, 1, nullptr), "guesses");
  sape2_infer_inspection* another = nullptr;
  expect_null(sape2_infer_inspection_new(nullptr, &batch, &another), "session");
  expect_null(sape2_infer_inspection_new(opened.session, nullptr, &another), "images");
  expect_null(sape2_infer_inspection_new(opened.session, &batch, nullptr), "inspection");
  expect_null(sape2_infer_inspection_rows(nullptr, 0, &patch, 1, &rows), "inspection");
  expect_null(sape2_infer_inspection_rows(inspection, 0, nullptr, 1, &rows), "patches");
  expect_null(sape2_infer_inspection_rows(inspection, 0, &patch, 1, nullptr), "rows");
  EXPECT_TRUE(model == nullptr && session == nullptr && another == nullptr);
  EXPECT_EQ(sape2_infer_inspection_free(inspection), SAPE2_INFER_OK);
}

TEST(CMistakes, Inspections) {
  const Opened opened;
  const std::vector<float> pixels(2 * 3 * 32 * 32);
  sape2_infer_inspection* inspection = nullptr;
  const sape2_infer_batch two = batch_of(pixels, 2, 32, 32), one = batch_of(pixels, 1, 32, 32);
  expect_failure(sape2_infer_inspection_new(opened.session, &two, &inspection),
                 SAPE2_INFER_BAD_ARGUMENT, "2");
  EXPECT_EQ(inspection, nullptr);
  ASSERT_EQ(sape2_infer_inspection_new(opened.session, &one, &inspection), SAPE2_INFER_OK);
  sape2_infer_rows rows = SAPE2_INFER_ROWS_INIT;
  const auto ask = [&](std::int64_t layer, std::int64_t patch) {
    return sape2_infer_inspection_rows(inspection, layer, &patch, 1, &rows);
  };
  expect_failure(ask(99, 0), SAPE2_INFER_BAD_ARGUMENT, "99");
  expect_failure(ask(-1, 0), SAPE2_INFER_BAD_ARGUMENT, "-1");
  expect_failure(ask(0, 64), SAPE2_INFER_BAD_ARGUMENT, "64");
  expect_failure(ask(0, -1), SAPE2_INFER_BAD_ARGUMENT, "-1");
  EXPECT_EQ(rows.attention, nullptr);
  EXPECT_EQ(sape2_infer_inspection_free(inspection), SAPE2_INFER_OK);
  expect_failure(ask(0, 0), SAPE2_INFER_BAD_HANDLE, "there is no such inspection");
  expect_failure(sape2_infer_inspection_free(inspection), SAPE2_INFER_BAD_HANDLE,
                 "was freed before");
}

// A struct of another version of the header: a shorter one is refused, a longer one is read as far
// as this version knows it.
TEST(CMistakes, StructsOfOtherVersions) {
  EXPECT_EQ(sape2_infer_abi_version(), static_cast<std::uint32_t>(SAPE2_INFER_ABI_VERSION));
  const Opened opened;
  sape2_infer_model* model = nullptr;
  sape2_infer_session* session = nullptr;
  struct {
    sape2_infer_description known = SAPE2_INFER_DESCRIPTION_INIT;
    std::int64_t later = 7;
  } about;
  about.known.struct_size = sizeof about;
  EXPECT_EQ(sape2_infer_describe(opened.model, &about.known), SAPE2_INFER_OK);
  EXPECT_EQ(about.known.classes, kClasses);
  EXPECT_EQ(about.later, 7);
  for (const std::size_t size : {std::size_t{0}, sizeof(std::size_t), SIZE_MAX}) {
    about.known.struct_size = size;
    expect_failure(sape2_infer_describe(opened.model, &about.known), SAPE2_INFER_BAD_ARGUMENT,
                   "the struct_size of description is " + std::to_string(size));
    sape2_infer_model_options model_options = SAPE2_INFER_MODEL_OPTIONS_INIT;
    model_options.struct_size = size;
    expect_failure(sape2_infer_model_open(kModelFile.c_str(), &model_options, &model),
                   SAPE2_INFER_BAD_ARGUMENT, "the struct_size of options is");
    sape2_infer_session_options session_options = SAPE2_INFER_SESSION_OPTIONS_INIT;
    session_options.struct_size = size;
    expect_failure(sape2_infer_session_new(opened.model, &session_options, &session),
                   SAPE2_INFER_BAD_ARGUMENT, "the struct_size of options is");
    sape2_infer_image image = SAPE2_INFER_IMAGE_INIT;
    image.struct_size = size;
    EXPECT_EQ(sape2_images_read(kShip.c_str(), &image), SAPE2_INFER_BAD_ARGUMENT);
    EXPECT_EQ(std::string(sape2_images_last_error()).find("the struct_size of image is"), 0u);
    EXPECT_EQ(image.pixels, nullptr);
  }
}

TEST(CMistakes, Batches) {
  const Opened opened;
  const std::vector<float> pixels(2 * 3 * 32 * 32);
  std::vector<float> logits(2 * kClasses, 7.0F);
  const auto run = [&](const sape2_infer_batch& batch, std::size_t capacity) {
    return sape2_infer_run(opened.session, &batch, logits.data(), capacity);
  };
  expect_failure(run(batch_of(pixels, 2, 32, 32), 19), SAPE2_INFER_BAD_ARGUMENT,
                 "there is room for 19 logits, but 2 images have 10 each");
  expect_failure(run(batch_of(pixels, 0, 32, 32), 20), SAPE2_INFER_BAD_ARGUMENT, "0 images");
  expect_failure(run(batch_of(pixels, -1, 32, 32), 20), SAPE2_INFER_BAD_ARGUMENT, "-1 images");
  expect_failure(run(batch_of(pixels, kHuge, 32, 32), 20), SAPE2_INFER_BAD_ARGUMENT, "room");
  expect_failure(run(batch_of(pixels, 1, 33, 32), 20), SAPE2_INFER_BAD_ARGUMENT, "33");
  expect_failure(run(batch_of(pixels, 1, 0, 32), 20), SAPE2_INFER_BAD_ARGUMENT, "0");
  expect_failure(run(batch_of(pixels, 1, -4, -4), 20), SAPE2_INFER_BAD_ARGUMENT, "-4");
  expect_failure(run(batch_of(pixels, 1, kHuge - 3, kHuge - 3), 20), SAPE2_INFER_BAD_ARGUMENT, "");
  sape2_infer_batch unset = batch_of(pixels, 1, 32, 32);
  unset.struct_size = 0;
  expect_failure(run(unset, 20), SAPE2_INFER_BAD_ARGUMENT, "struct_size of images is 0");
  unset = batch_of(pixels, 1, 32, 32);
  unset.pixels = nullptr;
  expect_failure(run(unset, 20), SAPE2_INFER_BAD_ARGUMENT, "images.pixels is null");
  EXPECT_EQ(logits, std::vector<float>(2 * kClasses, 7.0F));
}

TEST(CMistakes, Pictures) {
  const Opened opened;
  const auto bytes = some_bytes(32, 32, 3);
  float logits[kClasses];
  const auto run = [&](const sape2_infer_image& image) {
    return sape2_infer_run_images(opened.session, &image, 1, logits, kClasses);
  };
  expect_failure(run(image_of(bytes, 0, 32)), SAPE2_INFER_BAD_ARGUMENT, "32 × 0 pixels");
  expect_failure(run(image_of(bytes, 32, -1)), SAPE2_INFER_BAD_ARGUMENT, "-1 × 32 pixels");
  expect_failure(run(image_of(bytes, 1 << 20, 1 << 20)), SAPE2_INFER_BAD_ARGUMENT, "million");
  expect_failure(run(image_of(bytes, kHuge, kHuge)), SAPE2_INFER_BAD_ARGUMENT, "million");
  expect_failure(run(image_of(bytes, 8, 8, 4)), SAPE2_INFER_BAD_ARGUMENT, "4 channels");
  expect_failure(run(image_of(bytes, 8, 8, 1)), SAPE2_INFER_BAD_ARGUMENT,
                 "takes images of 3 channels, a picture has 1");
  sape2_infer_image narrow = image_of(bytes, 8, 8);
  narrow.row_bytes = 23;
  expect_failure(run(narrow), SAPE2_INFER_BAD_ARGUMENT, "row_bytes of an image is 23");
  narrow.row_bytes = -24;
  expect_failure(run(narrow), SAPE2_INFER_BAD_ARGUMENT, "row_bytes of an image is -24");
  narrow.row_bytes = kHuge;
  expect_failure(run(narrow), SAPE2_INFER_BAD_ARGUMENT, "more than memory can hold");
  const sape2_infer_image good = image_of(bytes, 32, 32);
  expect_failure(sape2_infer_run_images(opened.session, &good, 1, logits, 9),
                 SAPE2_INFER_BAD_ARGUMENT, "room for 9 logits");
  sape2_infer_image odd[2] = {good, good};
  odd[0].struct_size += 1;  // the next one would lie where no struct can
  float more_logits[2 * kClasses];
  expect_failure(sape2_infer_run_images(opened.session, odd, 2, more_logits, 2 * kClasses),
                 SAPE2_INFER_BAD_ARGUMENT, "struct_size of images is 49");
  expect_failure(sape2_infer_run_images(opened.session, &good, 0, logits, 9),
                 SAPE2_INFER_BAD_ARGUMENT, "no images");
  expect_failure(sape2_infer_run_images(opened.session, &good, SIZE_MAX, logits, 9),
                 SAPE2_INFER_BAD_ARGUMENT, "room");
  // 3·32·32 times as many numbers wrap around to none.
  expect_failure(
      sape2_infer_run_images(opened.session, &good, std::size_t{1} << 54, logits, SIZE_MAX),
      SAPE2_INFER_BAD_ARGUMENT, "more than memory can hold");
  float pixels[12];
  expect_failure(sape2_infer_prepare_image(opened.model, &good, 4, 4, pixels, 12),
                 SAPE2_INFER_BAD_ARGUMENT, "room for 12 numbers");
  // Before anything of that size is made.
  for (const std::int64_t side : {std::int64_t{40000}, std::int64_t{1} << 32, kHuge}) {
    expect_failure(sape2_infer_prepare_image(opened.model, &good, side, side, pixels, 12),
                   SAPE2_INFER_BAD_ARGUMENT, "room for 12 numbers");
  }
  expect_failure(sape2_infer_prepare_image(opened.model, &good, -4, 4, pixels, 12),
                 SAPE2_INFER_BAD_ARGUMENT, "-4");
}

TEST(CMistakes, RankingAndNames) {
  const Opened opened;
  std::vector<float> logits(kClasses, 0.5F);
  sape2_infer_guess guesses[kClasses + 1];
  expect_failure(sape2_infer_rank(opened.model, logits.data(), 0, guesses),
                 SAPE2_INFER_BAD_ARGUMENT, "the best 0 classes");
  expect_failure(sape2_infer_rank(opened.model, logits.data(), 11, guesses),
                 SAPE2_INFER_BAD_ARGUMENT, "expected 1 … 10");
  logits[3] = std::numeric_limits<float>::quiet_NaN();
  expect_failure(sape2_infer_rank(opened.model, logits.data(), 3, guesses), SAPE2_INFER_NOT_FINITE,
                 "not a finite number");
  const char* name = nullptr;
  expect_failure(sape2_infer_class_name(opened.model, 10, &name), SAPE2_INFER_BAD_ARGUMENT,
                 "classes are 0 … 9");
  expect_failure(sape2_infer_class_name(opened.model, -1, &name), SAPE2_INFER_BAD_ARGUMENT,
                 "class -1");
}

TEST(CMistakes, Threads) {
  const Opened opened;
  sape2_infer_session* session = nullptr;
  sape2_infer_session_options options = SAPE2_INFER_SESSION_OPTIONS_INIT;
  options.threads = -1;
  expect_failure(sape2_infer_session_new(opened.model, &options, &session),
                 SAPE2_INFER_BAD_ARGUMENT, "-1 threads");
  options.threads = 1 << 20;
  expect_failure(sape2_infer_session_new(opened.model, &options, &session),
                 SAPE2_INFER_BAD_ARGUMENT, "threads");
  EXPECT_EQ(session, nullptr);
}

TEST(CMistakes, ImageFiles) {
  sape2_infer_image image = SAPE2_INFER_IMAGE_INIT;
  EXPECT_EQ(sape2_images_read("none.png", &image), SAPE2_INFER_BAD_FILE);
  EXPECT_STREQ(sape2_images_last_error(), "there is no file \"none.png\"");
  EXPECT_EQ(sape2_images_decode("no image", 8, "upload", &image), SAPE2_INFER_BAD_FILE);
  EXPECT_STREQ(sape2_images_last_error(),
               "cannot read the image \"upload\": it is neither PNG nor JPEG");
  EXPECT_EQ(image.pixels, nullptr);
}

}  // namespace
}  // namespace sape2::capi::test
