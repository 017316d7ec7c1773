// clang-format off: each SIMD target includes this file again.
#include "cpu/target.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/attention_forward.cpp"
#include <hwy/foreach_target.h>
// clang-format on

#include "cpu/attention_pass.h"
#include "cpu/forward-inl.h"
#include "cpu/run_chunks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sape2::kernels::HWY_NAMESPACE {
namespace {

class AttentionForward {
 public:
  AttentionForward(const AttentionTask& task, Arena& arena) : core_(task, arena) {}

  void select_head(std::int64_t head) { core_.head_.select_head(head); }

  void run(const HeadOfImage& current, const HeadOfImage* next) {
    Head& head = core_.head_;
    core_.load(current, next);
    const int panels = core_.layout_.panel_count;
    for (int i = 0; i < panels; ++i) {
      // Distances are symmetric: a tile and its mirror share them.
      for (int n = head.symmetric() ? i : 0; n < panels; ++n) {
        core_.tile(i, n, head.bias(i, n), head.scores(i, n));
        if (head.symmetric() && n > i) {
          core_.tile(n, i, head.mirrored_bias(i, n), head.scores(n, i));
        }
      }
    }
    core_.finish(current.image);
  }

 private:
  Forward core_;
};

}  // namespace

void forward_chunks(const AttentionTask& task, std::int64_t begin, std::int64_t end) {
  run_chunks<AttentionForward>(task.chunks, begin, end, task.inputs.scratch, task);
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
