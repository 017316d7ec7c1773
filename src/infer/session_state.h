#pragma once

#include "sape2/infer/session.h"
#include "sape2/infer/thread_pool.h"

#include "infer/batch.h"

#include <list>
#include <optional>

namespace sape2::infer {

struct Session::State {
  State(Model model_, const SessionOptions& options);

  /// The plan for images of that size, made where it is not there.
  const GridPlan& plan_for(std::int64_t height, std::int64_t width);

  /// Throws Error where images are none that the model takes.
  void check(const ImageBatch& images) const;

  /// How many logits such a batch has.
  std::int64_t logits_of(const ImageBatch& images) const;

  void run(const ImageBatch& images, float* logits, const LayerWatcher& watcher = {});

  Model model;
  std::optional<ThreadPool> pool;
  const kernels::Executor* executor;
  std::list<GridPlan> plans;  // the one used last in front
  BatchMemory memory;
};

}  // namespace sape2::infer
