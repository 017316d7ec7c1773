#include "sape2/data/loader.h"

#include "sape2/data/shapes.h"

#include "support/error_text.h"
#include "support/gpu.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace sape2::data {
namespace {

using namespace sape2::testing;

Dataset shapes(std::int64_t count) {
  return make_shapes({.count = count}).dataset;
}

LoaderOptions recipe() {
  return {.batch_size = 32,
          .seed = 3,
          .augment = {.crop_padding = 4,
                      .flip = 0.5,
                      .policy = Policy::auto_augment,
                      .erase = 0.25,
                      .mix = {.mixup = 0.8, .cutmix = 1},
                      .label_smoothing = 0.1}};
}

std::vector<Batch> rest_of_epoch(Loader& loader) {
  std::vector<Batch> batches;
  while (auto batch = loader.next()) batches.push_back(std::move(*batch));
  return batches;
}

void expect_same(const Batch& a, const Batch& b) {
  EXPECT_TRUE(a.images.equal(b.images));
  EXPECT_TRUE(a.targets.equal(b.targets));
  EXPECT_TRUE(a.labels.equal(b.labels));
  EXPECT_TRUE(a.indices.equal(b.indices));
}

// Every operation, size and option: the fused kernel makes the CPU's images, bit for bit.
TEST(Loader, AGpuMakesTheSameBatches) {
  SAPE2_NEEDS_GPU();
  LoaderOptions rand = recipe();
  rand.augment.policy = Policy::rand_augment;
  rand.augment.rand_operations = 3;
  rand.augment.mix = {};
  rand.repeats = 3;
  for (LoaderOptions options : {recipe(), rand, LoaderOptions{.batch_size = 20}}) {
    Loader on_cpu(shapes(400), options);
    options.device = at::kCUDA;
    Loader on_gpu(shapes(400), options);
    for (int epoch = 0; epoch < 2; ++epoch) {
      on_cpu.start(epoch);
      on_gpu.start(epoch);
      while (auto batch = on_gpu.next()) {
        batch->images = batch->images.cpu();
        batch->targets = batch->targets.cpu();
        batch->labels = batch->labels.cpu();
        expect_same(*batch, *on_cpu.next());
      }
    }
  }
}

TEST(Loader, GivesEveryImageOnceAnEpoch) {
  Loader loader(shapes(100), {.batch_size = 32});
  EXPECT_EQ(loader.steps(), 4);
  const auto batches = rest_of_epoch(loader);
  ASSERT_EQ(batches.size(), 4u);
  EXPECT_EQ(batches[3].images.size(0), 4);
  std::vector<at::Tensor> indices;
  for (const Batch& batch : batches) indices.push_back(batch.indices);
  EXPECT_TRUE(std::get<0>(at::cat(indices).sort()).equal(at::arange(100)));
  EXPECT_FALSE(at::cat(indices).equal(at::arange(100)));
  EXPECT_FALSE(loader.next().has_value());
}

TEST(Loader, WithoutShuffleAndAugmentationGivesTheDataAsItIs) {
  const Dataset data = shapes(50);
  Loader loader(data, {.batch_size = 20, .shuffle = false});
  const auto batches = rest_of_epoch(loader);
  EXPECT_TRUE(batches[1].images.equal(normalise(data.images.slice(0, 20, 40), data.normalisation)));
  EXPECT_TRUE(batches[1].labels.equal(data.labels.slice(0, 20, 40)));
  EXPECT_TRUE(batches[1].targets.argmax(1).equal(batches[1].labels));
}

TEST(Loader, DropsTheSmallLastBatch) {
  Loader loader(shapes(100), {.batch_size = 32, .drop_last = true});
  EXPECT_EQ(loader.steps(), 3);
  EXPECT_EQ(rest_of_epoch(loader).size(), 3u);
}

TEST(Loader, ABatchIsAPureFunctionOfSeedEpochAndStep) {
  Loader loader(shapes(200), recipe());
  loader.start(4);
  const auto whole = rest_of_epoch(loader);
  loader.start(4, 3);
  const auto rest = rest_of_epoch(loader);
  ASSERT_EQ(rest.size() + 3, whole.size());
  for (std::size_t i = 0; i < rest.size(); ++i) expect_same(rest[i], whole[i + 3]);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    expect_same(loader.batch(4, static_cast<std::int64_t>(i)), whole[i]);
  }
  LoaderOptions unhurried = recipe();
  unhurried.prefetch = 0;
  Loader other(shapes(200), unhurried);
  other.start(4, 5);
  expect_same(*other.next(), whole[5]);
  EXPECT_FALSE(loader.batch(5, 0).indices.equal(whole[0].indices));
  LoaderOptions another_seed = recipe();
  another_seed.seed = 4;
  EXPECT_FALSE(Loader(shapes(200), another_seed).batch(4, 0).images.equal(whole[0].images));
}

TEST(Loader, AGpuSeesTheSameBatches) {
  if (!at::hasCUDA()) GTEST_SKIP() << "there is no GPU";
  LoaderOptions options = recipe();
  const Loader here(shapes(200), options);
  options.device = at::kCUDA;
  const Loader there(shapes(200), options);
  for (std::int64_t step = 0; step < here.steps(); ++step) {
    const Batch a = here.batch(1, step), b = there.batch(1, step);
    EXPECT_TRUE(a.images.equal(b.images.cpu()));
    EXPECT_TRUE(a.targets.equal(b.targets.cpu()));
    EXPECT_TRUE(a.labels.equal(b.labels.cpu()));
  }
}

// What each of several processes makes: together the batch, mixing across parts and all.
TEST(Loader, PartsTogetherAreTheBatch) {
  LoaderOptions rand = recipe();
  rand.augment.policy = Policy::rand_augment;
  rand.repeats = 3;
  LoaderOptions plain{.batch_size = 32};
  for (LoaderOptions options : {recipe(), rand, plain}) {
    const Batch whole = Loader(shapes(100), options).batch(1, 2);
    for (const std::int64_t count : {2, 3, 32}) {
      std::vector<at::Tensor> images, targets, labels, indices;
      for (std::int64_t index = 0; index < count; ++index) {
        options.part = {index, count};
        const Batch part = Loader(shapes(100), options).batch(1, 2);
        images.push_back(part.images);
        targets.push_back(part.targets);
        labels.push_back(part.labels);
        indices.push_back(part.indices);
      }
      expect_same({at::cat(images), at::cat(targets), at::cat(labels), at::cat(indices)}, whole);
    }
  }
  plain.part = {0, 33};
  expect_contains(error_text([&] { Loader(shapes(100), plain); }),
                  "32 images cannot be shared out over 33 processes");
}

TEST(Loader, RepeatsImagesWithOtherAugmentations) {
  LoaderOptions options = recipe();
  options.repeats = 3;
  options.augment.mix = {};
  const Batch batch = Loader(shapes(120), options).batch(0, 0);
  const auto* index = batch.indices.data_ptr<std::int64_t>();
  for (int i = 0; i < 30; i += 3) {
    EXPECT_EQ(index[i], index[i + 1]);
    EXPECT_EQ(index[i], index[i + 2]);
  }
  EXPECT_NE(index[0], index[3]);
  EXPECT_FALSE(batch.images[0].equal(batch.images[1]));
  EXPECT_EQ(Loader(shapes(120), options).steps(), 4);
}

TEST(Loader, GoesOverTheImagesSeveralTimesAnEpoch) {
  LoaderOptions options = recipe();
  options.passes = 3;
  options.batch_size = 40;
  const Loader loader(shapes(120), options);
  EXPECT_EQ(loader.steps(), 9);
  std::vector<std::vector<std::int64_t>> passes(3);
  for (std::int64_t step = 0; step < 9; ++step) {
    const Batch batch = loader.batch(0, step);
    const auto* index = batch.indices.data_ptr<std::int64_t>();
    auto& pass = passes[static_cast<std::size_t>(step / 3)];
    pass.insert(pass.end(), index, index + 40);
  }
  EXPECT_NE(passes[0], passes[1]);
  EXPECT_NE(passes[1], passes[2]);
  for (const auto& pass : passes) {
    EXPECT_EQ(std::set<std::int64_t>(pass.begin(), pass.end()).size(), 120u);
  }
}

TEST(Loader, CanBeLeftAtAnyTime) {
  for (int taken = 0; taken < 4; ++taken) {
    Loader loader(shapes(200), recipe());
    for (int i = 0; i < taken; ++i) loader.next();
    loader.start(1, 2);
    Loader moved = std::move(loader);
    EXPECT_TRUE(moved.next().has_value());
  }
}

TEST(Loader, FailuresOfTheWorkerReachTheCaller) {
  Dataset broken = shapes(40);
  broken.normalisation.mean.pop_back();
  Loader loader(broken, {.batch_size = 8});
  expect_contains(error_text([&] { loader.next(); }), "normalise");
}

TEST(Loader, RefusesImpossibleOptions) {
  const auto sentence = [](const LoaderOptions& options) {
    return error_text([&] { Loader(shapes(10), options); });
  };
  expect_contains(sentence({.batch_size = 0}), "batch size is 0");
  expect_contains(sentence({.batch_size = 11, .drop_last = true}), "only 10 images");
  expect_contains(sentence({.passes = 0}), "an epoch has 0 passes");
  expect_contains(sentence({.repeats = 0}), "repeated augmentation is 0");
  expect_contains(sentence({.prefetch = -1}), "-1 batches");
  expect_contains(sentence({.augment = {.flip = 3}}), "flip is 3");
  Loader loader(shapes(10), {.batch_size = 5});
  expect_contains(error_text([&] { loader.start(0, 3); }), "step 3");
  expect_contains(error_text([&] { loader.batch(0, 2); }), "no step 2");
}

}  // namespace
}  // namespace sape2::data
