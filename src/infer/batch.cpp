#include "infer/batch.h"

#include "infer/scratch.h"

#include <algorithm>

namespace sape2::infer {
namespace {

// A thread takes so many tokens through a layer before the next one: weights that the cache cannot
// hold are fetched once for all of them.
constexpr std::int64_t kTokensOfAGroup = 256;

}  // namespace

BatchRun::BatchRun(const Network& network, const GridPlan& plan, BatchMemory& memory,
                   const kernels::Executor& executor, const ImageBatch& images)
    : network_(network),
      plan_(plan),
      memory_(memory),
      executor_(executor),
      images_(images),
      threads_(executor.threads()),
      alone_(threads_ > 0 ? images.count / threads_ * threads_ : 0) {
  if (alone_ == 0) return;
  const std::int64_t of_a_thread = alone_ / threads_;
  const std::int64_t most = std::max<std::int64_t>(1, kTokensOfAGroup / plan.grid.tokens());
  groups_ = threads_ * ((of_a_thread + most - 1) / most);
}

void BatchRun::run(float* logits) const {
  const std::int64_t width = network_.config().vit.width, tokens = plan_.grid.tokens();
  // A smaller batch may leave images over where this one does not.
  const std::int64_t most_together = threads_ > 0 ? threads_ - 1 : images_.count;
  memory_.together.reserve(std::min(images_.count, most_together) * tokens, width);
  // One reference is captured: a std::function of more would allocate.
  struct {
    const BatchRun* batch;
    float* logits;
  } call{this, logits};
  if (groups_ > 0) {
    executor_.parallel_for(groups_, [&call](std::int64_t begin, std::int64_t end) {
      for (std::int64_t group = begin; group < end; ++group) {
        call.batch->run_alone(group, call.logits);
      }
    });
  }
  run_together(alone_, logits, {});
  // A thread that came too late this time finds its memory the next.
  const int threads = static_cast<int>(std::max<std::int64_t>(1, threads_));
  memory_.alone.reserve(threads);
  memory_.scratch.reserve(ForwardPass::kBlocksOfAThread * threads);
}

void BatchRun::run_watched(float* logits, const LayerWatcher& watcher) const {
  memory_.together.reserve(images_.count * plan_.grid.tokens(), network_.config().vit.width);
  run_together(0, logits, watcher);
}

ImageBatch BatchRun::part(std::int64_t begin, std::int64_t end) const {
  const std::int64_t pixels = network_.config().vit.channels * images_.height * images_.width;
  return {images_.pixels + begin * pixels, end - begin, images_.height, images_.width};
}

void BatchRun::run_alone(std::int64_t group, float* logits) const {
  const std::int64_t begin = group * alone_ / groups_, end = (group + 1) * alone_ / groups_;
  const std::int64_t width = network_.config().vit.width;
  const std::int64_t tokens = (end - begin) * plan_.grid.tokens();
  const Scratch memory(memory_.alone, Activations::floats_for(tokens, width));
  ForwardPass(network_, plan_, Activations(memory.floats(), tokens, width), memory_.scratch,
              kernels::SerialExecutor(), part(begin, end))
      .run(logits + begin * network_.logits_on(plan_.grid));
}

void BatchRun::run_together(std::int64_t begin, float* logits, const LayerWatcher& watcher) const {
  const ImageBatch images = part(begin, images_.count);
  if (images.count == 0) return;
  const Activations activations(memory_.together.data(), images.count * plan_.grid.tokens(),
                                network_.config().vit.width);
  ForwardPass(network_, plan_, activations, memory_.scratch, executor_, images)
      .run(logits + begin * network_.logits_on(plan_.grid), watcher);
}

}  // namespace sape2::infer
