#pragma once

#include "sape2_infer.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace sape2::capi::test {

inline const std::string kModelFile = SAPE2_SOURCE_DIR "/models/cifar10-sape2-rel-k.safetensors";
inline const std::string kShip = SAPE2_SOURCE_DIR "/examples/images/ship.png";
inline constexpr int kClasses = 10;

/// The shipped model, and a session of it.
class Opened {
 public:
  explicit Opened(std::int32_t threads = 1) {
    EXPECT_EQ(sape2_infer_model_open(kModelFile.c_str(), nullptr, &model), SAPE2_INFER_OK)
        << sape2_infer_last_error();
    sape2_infer_session_options options = SAPE2_INFER_SESSION_OPTIONS_INIT;
    options.threads = threads;
    EXPECT_EQ(sape2_infer_session_new(model, &options, &session), SAPE2_INFER_OK)
        << sape2_infer_last_error();
  }
  ~Opened() {
    sape2_infer_session_free(session);
    sape2_infer_model_free(model);
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

  sape2_infer_model* model = nullptr;
  sape2_infer_session* session = nullptr;
};

/// Pixels of a picture that is no flat one.
inline std::vector<std::uint8_t> some_bytes(std::int64_t height, std::int64_t width,
                                            std::int64_t channels) {
  std::vector<std::uint8_t> bytes(height * width * channels);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i * i % 253);
  return bytes;
}

inline sape2_infer_image image_of(const std::vector<std::uint8_t>& bytes, std::int64_t height,
                                  std::int64_t width, std::int64_t channels = 3) {
  sape2_infer_image image = SAPE2_INFER_IMAGE_INIT;
  image.pixels = bytes.data();
  image.height = height;
  image.width = width;
  image.channels = channels;
  return image;
}

inline sape2_infer_batch batch_of(const std::vector<float>& pixels, std::int64_t count,
                                  std::int64_t height, std::int64_t width) {
  sape2_infer_batch batch = SAPE2_INFER_BATCH_INIT;
  batch.pixels = pixels.data();
  batch.count = count;
  batch.height = height;
  batch.width = width;
  return batch;
}

/// Checks that a call failed with this code, and said this in one sentence.
inline void expect_failure(sape2_infer_status got, sape2_infer_status wanted,
                           const std::string& part) {
  EXPECT_EQ(got, wanted) << sape2_infer_last_error();
  const std::string sentence = sape2_infer_last_error();
  EXPECT_NE(sentence.find(part), std::string::npos) << sentence;
  EXPECT_EQ(sentence.find('\n'), std::string::npos) << sentence;
}

}  // namespace sape2::capi::test
