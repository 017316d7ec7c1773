#pragma once

#include "sape2/data/dataset.h"
#include "sape2/train/batch_source.h"
#include "sape2/train/run_config.h"

#include "support/file_bytes.h"

#include <cstdint>

namespace sape2::train::test {

/// Bright squares in one of four corners, in noise: easy to learn.
data::Dataset corners(int64_t images, uint64_t seed);

/// A run on them that takes a second, with dropout, stochastic depth, an average and accumulation.
RunConfig tiny_run();

/// Batches of a data set in a shuffled order that depends on the seed and the epoch.
class ShuffledSource : public BatchSource {
 public:
  ShuffledSource(data::Dataset dataset, int64_t batch_size, uint64_t seed)
      : dataset_(std::move(dataset)), batch_size_(batch_size), seed_(seed) {}

  int64_t steps_per_epoch() const override { return dataset_.size() / batch_size_; }
  int64_t images_per_step() const override { return batch_size_; }
  Batch batch(int64_t epoch, int64_t step) override;

  /// From this batch on (counted over all), images are not numbers.
  void poison_from(int64_t batch) { poisoned_ = batch; }

 private:
  data::Dataset dataset_;
  int64_t batch_size_;
  uint64_t seed_;
  int64_t poisoned_ = -1;
};

using sape2::testing::file_bytes;
using sape2::testing::write_bytes;

}  // namespace sape2::train::test
