// clang-format off: each SIMD target includes this file again.
#include "cpu/target.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/attention_forward.cpp"
#include <hwy/foreach_target.h>
// clang-format on

#include "cpu/attention_pass.h"
#include "cpu/forward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sape2::kernels::HWY_NAMESPACE {
namespace {

void run_image(Forward& forward, std::int64_t image) {
  Head& head = forward.head_;
  forward.load(image);
  const int panels = forward.layout_.panel_count;
  for (int i = 0; i < panels; ++i) {
    // Distances are symmetric: a tile and its mirror share them.
    for (int n = head.symmetric() ? i : 0; n < panels; ++n) {
      forward.tile(i, n, head.bias(i, n), head.scores(i, n));
      if (head.symmetric() && n > i) {
        forward.tile(n, i, head.mirrored_bias(i, n), head.scores(n, i));
      }
    }
  }
  forward.finish(image);
}

}  // namespace

void forward_chunks(const AttentionTask& task, std::int64_t begin, std::int64_t end) {
  Arena plan;
  { const Forward planned(task, plan); }
  Arena arena(plan.used());
  Forward forward(task, arena);
  for (std::int64_t chunk = begin; chunk < end; ++chunk) {
    forward.head_.select_head(task.chunks.head(chunk));
    for (std::int64_t image = task.chunks.first_image(chunk); image < task.chunks.last_image(chunk);
         ++image) {
      run_image(forward, image);
    }
  }
}

}  // namespace sape2::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sape2::kernels {

HWY_EXPORT(forward_chunks);

void forward_chunks(const AttentionTask& task, std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(forward_chunks)(task, begin, end);
}

}  // namespace sape2::kernels
#endif
