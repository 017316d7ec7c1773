#include "train/support.h"

#include "sape2/data/augment.h"
#include "sape2/data/random.h"

#include <ATen/ATen.h>

#include <limits>

namespace sape2::train::test {

data::Dataset corners(int64_t images, uint64_t seed) {
  constexpr int64_t kSide = 8, kSquare = 3;
  data::Dataset dataset;
  dataset.name = "corners";
  dataset.class_names = {"top left", "top right", "bottom left", "bottom right"};
  dataset.normalisation = {{0.4}, {0.25}};
  dataset.images = at::empty({images, 1, kSide, kSide}, at::kByte);
  dataset.labels = at::empty({images}, at::kLong);
  for (int64_t i = 0; i < images; ++i) {
    data::Draws draws(seed, 0, static_cast<uint64_t>(i), data::Purpose::shapes);
    const int64_t label = draws.below(4);
    dataset.labels.data_ptr<int64_t>()[i] = label;
    uint8_t* pixels = dataset.images.data_ptr<uint8_t>() + i * kSide * kSide;
    const int64_t top = label / 2 * (kSide - kSquare), left = label % 2 * (kSide - kSquare);
    for (int64_t y = 0; y < kSide; ++y) {
      for (int64_t x = 0; x < kSide; ++x) {
        const bool inside = y >= top && y < top + kSquare && x >= left && x < left + kSquare;
        pixels[y * kSide + x] = static_cast<uint8_t>(draws.below(120) + (inside ? 120 : 0));
      }
    }
  }
  return dataset;
}

RunConfig tiny_run() {
  RunConfig config;
  nn::ViTConfig& vit = config.model.vit;
  vit.image_size = {8, 8};
  vit.patch_size = {2, 2};
  vit.channels = 1;
  vit.classes = 4;
  vit.depth = 2;
  vit.width = 24;
  vit.heads = 2;
  vit.mlp_dropout = 0.1;
  vit.stochastic_depth = 0.2;
  config.model.encoding = nn::EncodingSpec::parse("sape2-rel-k");
  config.model.mean = {0.4};
  config.model.deviation = {0.25};
  config.recipe.epochs = 3;
  config.recipe.batch_size = 16;
  config.recipe.accumulation = 2;
  config.recipe.learning_rate = 3e-3;
  config.recipe.warmup_epochs = 0.5;
  config.recipe.clip_norm = 1;
  config.recipe.ema_decay = 0.9;
  config.recipe.log_steps = 3;
  config.recipe.checkpoint_steps = 5;
  config.data.name = "corners";
  config.seed = 7;
  return config;
}

Batch ShuffledSource::batch(int64_t epoch, int64_t step) {
  const auto order = data::shuffled(
      dataset_.size(), data::Draws(seed_, static_cast<uint64_t>(epoch), 0, data::Purpose::order));
  const at::Tensor chosen = at::tensor(order, at::kLong).narrow(0, step * batch_size_, batch_size_);
  Batch batch;
  batch.images = data::normalise(dataset_.images.index_select(0, chosen), dataset_.normalisation);
  batch.targets =
      at::one_hot(dataset_.labels.index_select(0, chosen), dataset_.classes()).to(at::kFloat);
  const bool poisoned = poisoned_ >= 0 && epoch * steps_per_epoch() + step >= poisoned_;
  if (poisoned) batch.images.fill_(std::numeric_limits<float>::quiet_NaN());
  return batch;
}

}  // namespace sape2::train::test
