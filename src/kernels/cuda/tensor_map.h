#pragma once

#include "kernels/cuda/element.cuh"
#include "kernels/cuda/params.h"

#include <cuda.h>

#include <type_traits>

/// What Hopper's copy engine must know of a tensor to bring boxes of it into shared memory,
/// swizzled as Tile has them, zeros where a box reaches beyond the tensor.
namespace sape2::kernels::cuda {

/// A 16-bit tensor of five dimensions, the innermost first and without gaps, and its boxes.
struct BoxedTensor {
  const void* data;
  bool is_bfloat16;
  std::int64_t sizes[5];
  std::int64_t strides[4];  // of dimensions 1 … 4, in elements
  int box[3];  // of dimensions 0 … 2; 1 of the others; rows of 128 bytes, others are not swizzled
};

/// False where the driver knows no such thing or refuses.
bool make_tensor_map(const BoxedTensor& tensor, CUtensorMap* map);

/// Tokens first … of q, k, v or a gradient, seen as `down` rows of `across`; boxes of whole heads.
template <class T>
bool make_token_map(const ConstView& view, const Geometry& g, int first, int across, int down,
                    int box_across, int box_down, CUtensorMap* map) {
  const std::int64_t images = g.batch_heads / g.heads;
  return make_tensor_map({.data = static_cast<const T*>(view.data) + first * view.token_stride,
                          .is_bfloat16 = std::is_same_v<T, Bf16>,
                          .sizes = {g.head_size, across, down, g.heads, images},
                          .strides = {view.token_stride, across * view.token_stride,
                                      view.head_stride, view.image_stride},
                          .box = {64, box_across, box_down}},
                         map);
}

/// Axis vectors of `entries` numbers; boxes of 64 of them, or fewer, for `box_tokens` tokens.
template <class T>
bool make_vector_map(const void* vectors, const Geometry& g, int entries, int width, int box_tokens,
                     CUtensorMap* map, int box_entries = 64) {
  const std::int64_t head = std::int64_t(g.padded_tokens) * width;
  return make_tensor_map({.data = vectors,
                          .is_bfloat16 = std::is_same_v<T, Bf16>,
                          .sizes = {entries, g.padded_tokens, 1, g.batch_heads, 1},
                          .strides = {width, head, head, head * g.batch_heads},
                          .box = {box_entries, box_tokens, 1}},
                         map);
}

}  // namespace sape2::kernels::cuda
