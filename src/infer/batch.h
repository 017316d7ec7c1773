#pragma once

#include "infer/forward_pass.h"

namespace sape2::infer {

/// A session's memory of intermediate results; it grows and never shrinks.
struct BatchMemory {
  ActivationMemory together;   ///< of images that all threads work on
  kernels::ScratchPool alone;  ///< of images that one thread has to itself
  kernels::ScratchPool scratch;

  std::size_t bytes() const { return together.bytes() + alone.bytes() + scratch.bytes(); }
};

/// A batch of images through a network. As far as there are images for all threads alike, each
/// thread takes its own through all layers and waits for nobody; on the rest, and on all images if
/// the executor does not know its threads, all work together.
class BatchRun {
 public:
  BatchRun(const Network& network, const GridPlan& plan, BatchMemory& memory,
           const kernels::Executor& executor, const ImageBatch& images);

  void run(float* logits) const;

  /// The same with all threads on all images, each layer being watched.
  void run_watched(float* logits, const LayerWatcher& watcher) const;

 private:
  void run_alone(std::int64_t group, float* logits) const;
  void run_together(std::int64_t begin, float* logits, const LayerWatcher& watcher) const;
  ImageBatch part(std::int64_t begin, std::int64_t end) const;

  const Network& network_;
  const GridPlan& plan_;
  BatchMemory& memory_;
  const kernels::Executor& executor_;
  ImageBatch images_;
  std::int64_t threads_;     // 0: nobody knows how many
  std::int64_t alone_;       // images that one thread takes through all layers
  std::int64_t groups_ = 0;  // of them
};

}  // namespace sape2::infer
