#include "sape2/data/locations.h"

#include "data/get/verify.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

// The published files themselves, on machines that have them.
namespace sape2::data {
namespace {

class RealData : public ::testing::TestWithParam<const char*> {};

TEST_P(RealData, IsWhatWasPublished) {
  const std::string name = GetParam();
  const auto folder = find_dataset(name);
  if (!folder) GTEST_SKIP() << name << " is not on this machine: sape2 data get " << name;
  EXPECT_NO_THROW(verify(official_files(name), *folder));
  const DatasetInfo& info = dataset_info(name);
  const Dataset train = load_dataset(name, Split::train), test = load_dataset(name, Split::test);
  EXPECT_EQ(train.images.sizes(),
            (at::IntArrayRef{info.train_images, info.channels, info.height, info.width}));
  EXPECT_EQ(test.size(), info.test_images);
  EXPECT_EQ(test.classes(), info.classes);
  const at::Tensor sample = train.images.slice(0, 0, train.size(), 5).to(at::kFloat) / 255;
  for (std::int64_t c = 0; c < info.channels; ++c) {
    EXPECT_NEAR(sample.select(1, c).mean().item<float>(), train.normalisation.mean[c], 0.01);
    EXPECT_NEAR(sample.select(1, c).std().item<float>(), train.normalisation.deviation[c], 0.01);
  }
}

INSTANTIATE_TEST_SUITE_P(All, RealData, ::testing::Values("cifar10", "cifar100", "fashion-mnist"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace sape2::data
