#pragma once

#include "sape2/data/augment.h"
#include "sape2/data/dataset.h"

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <optional>

namespace sape2::data {

/// One of several parts of a batch, of as equal sizes as can be: a process makes its own only.
struct BatchPart {
  std::int64_t index = 0;
  std::int64_t count = 1;

  /// Where it begins in a batch of so many images, and where it ends.
  std::int64_t begin(std::int64_t images) const { return images * index / count; }
  std::int64_t end(std::int64_t images) const { return images * (index + 1) / count; }
};

struct LoaderOptions {
  std::int64_t batch_size = 128;
  std::uint64_t seed = 0;
  bool shuffle = true;
  bool drop_last = false;    ///< leave out the last batch if it is smaller than the others
  std::int64_t passes = 1;   ///< times an epoch goes over the images, each in an order of its own
  std::int64_t repeats = 1;  ///< repeated augmentation: an image appears so many times in a row
  AugmentOptions augment;
  at::Device device = at::kCPU;
  BatchPart part;  ///< of each batch; the parts together are the batch, augmentation and all
  std::int64_t prefetch = 2;  ///< batches made ahead on a thread; 0: made when asked for
};

struct Batch {
  at::Tensor images;   ///< [B, C, H, W] float32, normalised
  at::Tensor targets;  ///< [B, classes] float32 probabilities; with masks [B, H, W] uint8
  at::Tensor labels;   ///< [B] int64, before any mixing; undefined with masks
  at::Tensor indices;  ///< [B] int64, on the CPU: which images of the data set these are
};

/// Gives a data set in batches. A batch depends on (seed, epoch, step) alone, not on the batches
/// before it, the device or the timing: a run can go on at any step.
class Loader {
 public:
  Loader(Dataset dataset, const LoaderOptions& options);
  ~Loader();
  Loader(Loader&&) noexcept;
  Loader& operator=(Loader&&) noexcept;

  /// Batches an epoch. Repeats do not make it longer: fewer different images are in it.
  std::int64_t steps() const;

  /// Goes to a step of an epoch; next() gives that batch and those after it. A new loader stands at
  /// the first step of epoch 0.
  void start(std::int64_t epoch, std::int64_t step = 0);

  /// The next batch, or nothing at the end of the epoch.
  std::optional<Batch> next();

  /// Any batch by itself, without regard to start() and next().
  Batch batch(std::int64_t epoch, std::int64_t step) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sape2::data
