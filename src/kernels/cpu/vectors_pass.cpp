// clang-format off: each SIMD target includes this file again.
#include "cpu/target.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/vectors_pass.cpp"
#include <hwy/foreach_target.h>
// clang-format on

#include "cpu/math-inl.h"
#include "cpu/pack.h"
#include "cpu/run_chunks-inl.h"
#include "cpu/stage1.h"
#include "cpu/vector_panels.h"
#include "cpu/vectors_pass.h"

HWY_BEFORE_NAMESPACE();
namespace sape2::kernels::HWY_NAMESPACE {
namespace {

class Vectors {
 public:
  Vectors(const VectorsTask& task, bool backward, Arena& arena)
      : task_(task),
        layout_(task.layout),
        lines_(layout_.rows + layout_.cols),
        stage1_(layout_, task.encoding, backward, arena) {
    for (int m = 0; m < 2; ++m) {
      matrices_[m] = arena.take(layout_.matrix());
      panels_[m] = arena.take(layout_.panels(layout_.head_size));
      if (backward) dmatrices_[m] = arena.take(layout_.matrix());
      axes_[m] = m < stage1_.sets() ? arena.take(layout_.panels(lines_)) : nullptr;
    }
    scratch_ = arena.take(vector_scratch(layout_));
  }

  void select_head(std::int64_t head) {
    head_ = head;
    stage1_.select_head(head);
  }

  void forward(std::int64_t image) {
    load(image);
    for (int i = 0; i < layout_.panel_count; ++i) stage1_.vectors(i, content_panels_, false, axes_);
    for (int set = 0; set < stage1_.sets(); ++set) {
      const std::int64_t at = offset(set, image);
      store_vectors(layout_, axes_[set], 1.0F, task_.inputs.dtype, scratch_,
                    static_cast<char*>(task_.outputs.x) + at * layout_.cols,
                    static_cast<char*>(task_.outputs.y) + at * layout_.rows);
    }
  }

  void backward(std::int64_t image, ChunkGradients* gradients) {
    load(image);
    float* dcontent[2] = {};
    for (int set = 0; set < stage1_.sets(); ++set) {
      const std::int64_t at = offset(set, image);
      load_vectors(layout_, static_cast<const char*>(task_.output_gradients.dx) + at * layout_.cols,
                   static_cast<const char*>(task_.output_gradients.dy) + at * layout_.rows,
                   task_.inputs.dtype, false, scratch_, axes_[set]);
      dcontent[set] = dmatrices_[stage1_.from_q(set) ? 0 : 1];
    }
    for (float* matrix : dmatrices_) clear(matrix, layout_.matrix());
    for (int i = 0; i < layout_.panel_count; ++i) {
      stage1_.vectors_gradient(i, content_panels_, content_, axes_, dcontent, gradients);
    }
    stage1_.add_scores_gradient(matrices_[0], matrices_[1], dmatrices_[0], dmatrices_[1]);
    const View* views[2] = {&task_.gradients.dq, &task_.gradients.dk};
    for (int m = 0; m < 2; ++m) {
      if (views[m]->data == nullptr) continue;
      store_head(layout_, dmatrices_[m], nullptr,
                 head_of(*views[m], task_.inputs.dtype, image, head_), task_.inputs.dtype,
                 views[m]->token_stride);
    }
  }

 protected:
  const VectorsTask& task_;

 private:
  /// Bytes in front of a set's vectors of this image and head, an entry a patch.
  std::int64_t offset(int set, std::int64_t image) const {
    const Shape& shape = task_.inputs.shape;
    const std::int64_t size = task_.inputs.dtype == DType::float32 ? 4 : 2;
    return ((set * shape.images + image) * shape.heads + head_) * layout_.patches * size;
  }

  void load(std::int64_t image) {
    const VectorInputs& in = task_.inputs;
    const ConstView* views[2] = {&in.q, &in.k};
    for (int m = 0; m < 2; ++m) {
      load_head(layout_, head_of(*views[m], in.dtype, image, head_), in.dtype,
                views[m]->token_stride, matrices_[m]);
      transpose_head(layout_, matrices_[m], panels_[m]);
    }
    for (int set = 0; set < stage1_.sets(); ++set) {
      const int m = stage1_.from_q(set) ? 0 : 1;
      content_[set] = matrices_[m];
      content_panels_[set] = panels_[m];
    }
    stage1_.compute_scores(matrices_[0], matrices_[1]);
  }

  const Layout& layout_;
  int lines_;
  Stage1 stage1_;
  std::int64_t head_ = 0;
  float* matrices_[2];         // q and k, (tokens, ld)
  float* panels_[2];           // (panels, head_size, kTile)
  float* dmatrices_[2]{};      // dq and dk, (tokens, ld)
  float* axes_[2];             // vectors or their gradient, (panels, lines, kTile)
  const float* content_[2]{};  // q or k, by set
  const float* content_panels_[2]{};
  float* scratch_;
};

struct VectorsForward : Vectors {
  VectorsForward(const VectorsTask& task, Arena& arena) : Vectors(task, false, arena) {}
  void run(const HeadOfImage& current, const HeadOfImage*) { forward(current.image); }
};

struct VectorsBackward : Vectors {
  VectorsBackward(const VectorsTask& task, Arena& arena) : Vectors(task, true, arena) {}
  void run(const HeadOfImage& current, const HeadOfImage*) {
    backward(current.image, task_.chunk_gradients + current.chunk);
  }
};

}  // namespace

void vectors_forward_chunks(const VectorsTask& task, std::int64_t begin, std::int64_t end) {
  run_chunks<VectorsForward>(task.chunks, begin, end, nullptr, task);
}

void vectors_backward_chunks(const VectorsTask& task, std::int64_t begin, std::int64_t end) {
  run_chunks<VectorsBackward>(task.chunks, begin, end, nullptr, task);
}

}  // namespace sape2::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sape2::kernels {

HWY_EXPORT(vectors_forward_chunks);
HWY_EXPORT(vectors_backward_chunks);

void vectors_forward_chunks(const VectorsTask& task, std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(vectors_forward_chunks)(task, begin, end);
}

void vectors_backward_chunks(const VectorsTask& task, std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(vectors_backward_chunks)(task, begin, end);
}

}  // namespace sape2::kernels
#endif
