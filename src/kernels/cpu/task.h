#pragma once

#include "sape2/kernels/attention.h"

#include "cpu/layout.h"
#include "cpu/tile_bias.h"

namespace sape2::kernels {

/// Work is cut into chunks, each some images of one head. The cut depends on the shape alone, so
/// sums over images come out the same for any number of threads.
struct Chunks {
  std::int64_t images, heads, groups;

  explicit Chunks(const Shape& shape);
  std::int64_t count() const { return heads * groups; }
  std::int64_t head(std::int64_t chunk) const { return chunk / groups; }
  std::int64_t first_image(std::int64_t chunk) const { return chunk % groups * images / groups; }
  std::int64_t last_image(std::int64_t chunk) const {
    return (chunk % groups + 1) * images / groups;
  }
};

/// One head of one image, and the chunk it belongs to.
struct HeadOfImage {
  std::int64_t image, head, chunk;
};

/// Gradients of one chunk that are summed over chunks at the end.
struct ChunkGradients {
  double gain = 0.0;
  double gate_scale = 0.0;
  double gate_offset = 0.0;
  float* tables[2] = {nullptr, nullptr};  ///< by set: (2 · positions, ld), x's rows then y's
};

/// One attention pass, forward or backward, over all images and heads.
struct AttentionTask {
  Layout layout;
  Chunks chunks;
  AttentionInputs inputs;
  TileBias::Kind kind = TileBias::Kind::none;
  Bias bias;
  AxisVectors vectors;                 ///< given vectors, or x == nullptr …
  const Encoding* encoding = nullptr;  ///< … and what they are made from

  AttentionOutputs outputs;

  AttentionSaved saved;
  AttentionGradients gradients;
  AxisVectorGradients vector_gradients;
  ChunkGradients* chunk_gradients = nullptr;  ///< one a chunk

  explicit AttentionTask(const AttentionInputs& inputs_)
      : layout(inputs_.shape), chunks(inputs_.shape), inputs(inputs_) {}
};

inline const void* head_of(const ConstView& view, DType dtype, std::int64_t image,
                           std::int64_t head) {
  const std::int64_t offset = image * view.image_stride + head * view.head_stride;
  return static_cast<const char*>(view.data) + offset * (dtype == DType::float32 ? 4 : 2);
}

inline void* head_of(const View& view, DType dtype, std::int64_t image, std::int64_t head) {
  const std::int64_t offset = image * view.image_stride + head * view.head_stride;
  return static_cast<char*>(view.data) + offset * (dtype == DType::float32 ? 4 : 2);
}

inline ConstView as_const(const View& view) {
  return {view.data, view.image_stride, view.head_stride, view.token_stride};
}

/// How many pairs of tables, or sets of vectors, a source has; a set's content is q or k.
inline int sets_of(Source source) {
  return source == Source::qk ? 2 : 1;
}
inline bool set_is_from_q(Source source, int set) {
  return source == Source::q || (source == Source::qk && set == 0);
}

}  // namespace sape2::kernels
