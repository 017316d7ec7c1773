#include "sape2/infer/session.h"

#include "infer/support.h"
#include "support/file_bytes.h"

#include <gtest/gtest.h>

// The runtime computes what nn::ViT computes. Differences are of the largest logit of the batch.
namespace sape2::infer::testing {
namespace {

constexpr double kTolerance = 1e-5;

struct Size {
  std::int64_t height, width;
};

void expect_same_logits(const SavedModel& saved, const Model& model, Size size,
                        std::int64_t count = 2) {
  SCOPED_TRACE(std::to_string(size.height) + "×" + std::to_string(size.width));
  const std::vector<float> pixels =
      random_numbers(count * model.config().vit.channels * size.height * size.width, 7);
  Session session(model, {.threads = 2});
  const auto actual = session.run({pixels.data(), count, size.height, size.width});
  const auto expected = saved.logits(pixels, count, size.height, size.width);
  EXPECT_LT(relative_difference(actual, expected), kTolerance);
}

TEST(Logits, AreThoseOfLibTorchForEveryEncodingAndOption) {
  for (const std::string& encoding : encodings_with_options()) {
    SCOPED_TRACE(encoding);
    const SavedModel saved(small_config(encoding));
    const Model model = Model::open(saved.path);
    expect_same_logits(saved, model, {12, 20});
    expect_same_logits(saved, model, {16, 12});  // another grid: fewer columns, more rows
    expect_same_logits(saved, model, {24, 28});  // more of both
  }
}

TEST(Logits, OfAFormWithoutAKernelAreRefused) {
  const SavedModel saved(small_config("sape2-rel-k[form=paths]"));
  try {
    Model::open(saved.path);
    ADD_FAILURE() << "it was opened";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("no kernel for form=paths"), std::string::npos)
        << error.what();
  }
}

TEST(Logits, AreThoseOfLibTorchForEveryPoolingAndPrefix) {
  for (const std::string& encoding : encodings_with_options()) {
    for (const nn::Pooling pooling :
         {nn::Pooling::mean, nn::Pooling::sequence, nn::Pooling::class_token}) {
      for (const std::int64_t registers : {0, 3}) {
        SCOPED_TRACE(encoding + " " + nn::to_string(pooling) + " " + std::to_string(registers));
        nn::ModelConfig config = small_config(encoding);
        config.vit.pooling = pooling;
        config.vit.registers = registers;
        const SavedModel saved(config);
        const Model model = Model::open(saved.path);
        expect_same_logits(saved, model, {12, 20});
        expect_same_logits(saved, model, {20, 8});
      }
    }
  }
}

TEST(Logits, AreThoseOfLibTorchForOddShapes) {
  for (const char* encoding : {"sape2-k+ape", "sape2-rel-qk", "rpe", "none"}) {
    SCOPED_TRACE(encoding);
    nn::ModelConfig config = small_config(encoding);
    // Nothing is a multiple of a vector: width 35, 5 heads of 7, 52 hidden, 3·3·2 pixels a patch.
    config.vit = {.image_size = {9, 8},
                  .patch_size = {3, 2},
                  .channels = 3,
                  .classes = 37,
                  .depth = 2,
                  .width = 35,
                  .heads = 5,
                  .mlp_ratio = 1.5,
                  .pooling = nn::Pooling::mean,
                  .registers = 0,
                  .layer_scale = 0.5};
    const SavedModel saved(config);
    const Model model = Model::open(saved.path);
    expect_same_logits(saved, model, {9, 8});
    expect_same_logits(saved, model, {3, 2}, 5);  // one patch
    expect_same_logits(saved, model, {27, 26});
  }
}

TEST(Logits, AreThoseOfLibTorchForWeightsOfBfloat16) {
  for (const char* encoding : {"sape2-rel-k", "sape2-k+ape", "rope2d"}) {
    SCOPED_TRACE(encoding);
    const SavedModel saved(small_config(encoding), io::WeightType::bfloat16);
    const Model model = Model::open(saved.path);
    expect_same_logits(saved, model, {12, 20});
    nn::ModelConfig odd = small_config("none");
    odd.vit.width = 35;  // pairs of weights with one left over
    odd.vit.heads = 5;
    const SavedModel odd_saved(odd, io::WeightType::bfloat16);
    expect_same_logits(odd_saved, Model::open(odd_saved.path), {12, 20});
    // They are kept as they lie in the file.
    const SavedModel wide(small_config(encoding));
    EXPECT_LT(model.bytes(), Model::open(wide.path).bytes() * 2 / 3);
  }
}

TEST(Logits, OfBfloat16ArithmeticAreNear) {
  const SavedModel saved(small_config("sape2-rel-k"));
  const Model model = Model::open(saved.path, {.arithmetic = Arithmetic::bfloat16});
  if (model.arithmetic() == Arithmetic::float32) GTEST_SKIP() << "this CPU has no AVX-512 BF16";
  const std::vector<float> pixels = random_numbers(2 * 3 * 12 * 20, 7);
  Session session(model, {.threads = 2});
  const auto actual = session.run({pixels.data(), 2, 12, 20});
  const auto expected = saved.logits(pixels, 2, 12, 20);
  const double difference = relative_difference(actual, expected);
  EXPECT_LT(difference, 0.03);
  EXPECT_GT(difference, 1e-5);  // it does multiply bfloat16
  EXPECT_LT(model.bytes(), Model::open(saved.path).bytes() * 2 / 3);
}

TEST(Logits, DoNotDependOnThreadsOrBatches) {
  const SavedModel saved(small_config("sape2-rel-k"));
  for (const Arithmetic arithmetic : {Arithmetic::float32, Arithmetic::bfloat16}) {
    const Model model = Model::open(saved.path, {arithmetic});
    const std::int64_t count = 9, numbers = 3 * 12 * 20;
    const std::vector<float> pixels = random_numbers(count * numbers, 5);
    Session alone(model, {.threads = 1});
    const auto expected = alone.run({pixels.data(), count, 12, 20});
    for (const int threads : {2, 3, 7}) {
      Session session(model, {.threads = threads});
      EXPECT_EQ(session.run({pixels.data(), count, 12, 20}), expected) << threads << " threads";
      for (std::int64_t image = 0; image < count; ++image) {
        const auto one = session.run({pixels.data() + image * numbers, 1, 12, 20});
        EXPECT_TRUE(std::equal(one.begin(), one.end(), expected.begin() + image * 10)) << image;
      }
    }
  }
}

TEST(Logits, AreTheSameFromMemory) {
  const SavedModel saved(small_config("sape2-k"));
  const std::string bytes = sape2::testing::file_bytes(saved.path);
  const Model model = [&] {
    // One byte further on nothing is aligned; and the memory is gone before the model runs.
    std::vector<char> moved(bytes.size() + 1);
    std::ranges::copy(bytes, moved.begin() + 1);
    return Model::from_memory(std::as_bytes(std::span(moved).subspan(1)), "a model");
  }();
  expect_same_logits(saved, model, {12, 20});
}

}  // namespace
}  // namespace sape2::infer::testing
