// Goes through the heads of a range of chunks; included once per SIMD target.
#if defined(SAPE2_KERNELS_CPU_RUN_CHUNKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SAPE2_KERNELS_CPU_RUN_CHUNKS_INL_H_
#undef SAPE2_KERNELS_CPU_RUN_CHUNKS_INL_H_
#else
#define SAPE2_KERNELS_CPU_RUN_CHUNKS_INL_H_
#endif

#include "cpu/arena.h"
#include "cpu/task.h"

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace sape2::kernels::HWY_NAMESPACE {
namespace {

/// Makes a Pass(arguments…, arena) with scratch memory of its own (from `pool` if given), and has
/// it run() every head of chunks [begin, end). select_head() comes before a head's first image.
/// Each run() is told the head after it, to fetch it from memory in time, or null.
template <class Pass, class... Arguments>
void run_chunks(const Chunks& chunks, std::int64_t begin, std::int64_t end, ScratchPool* pool,
                const Arguments&... arguments) {
  Arena plan;
  { const Pass planned(arguments..., plan); }
  Arena arena(plan.used(), pool);
  Pass pass(arguments..., arena);
  for (std::int64_t chunk = begin; chunk < end; ++chunk) {
    const std::int64_t head = chunks.head(chunk);
    const std::int64_t last = chunks.last_image(chunk);
    pass.select_head(head);
    for (std::int64_t image = chunks.first_image(chunk); image < last; ++image) {
      HeadOfImage next{image + 1, head, chunk};
      if (image + 1 == last && chunk + 1 < end) {
        next = {chunks.first_image(chunk + 1), chunks.head(chunk + 1), chunk + 1};
      }
      const bool more = image + 1 < last || chunk + 1 < end;
      pass.run({image, head, chunk}, more ? &next : nullptr);
    }
  }
}

}  // namespace
}  // namespace sape2::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
