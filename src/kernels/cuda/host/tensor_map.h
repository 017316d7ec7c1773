#pragma once

#include "kernels/cuda/common/element.cuh"
#include "kernels/cuda/host/params.h"

#include <cuda.h>

#include <type_traits>

/// What TMA must know of a tensor to bring boxes of it into shared memory,
/// swizzled as Tile has them, zeros where a box reaches beyond the tensor.
namespace sape2::kernels::cuda {

/// A tensor of five dimensions, the innermost first and without gaps, and its boxes.
struct TmaTensor {
  const void* data;
  CUtensorMapDataType type;
  std::int64_t sizes[5];
  std::int64_t strides[4];  // of dimensions 1 … 4, in elements
  int box[3];  // of dimensions 0 … 2; 1 of the others; rows of 128 or 64 bytes are swizzled
};

template <class T>
inline constexpr CUtensorMapDataType kMapType =
    std::is_same_v<T, Bf16>   ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
    : std::is_same_v<T, Fp16> ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                              : CU_TENSOR_MAP_DATA_TYPE_FLOAT32;

/// False where the driver knows no such thing or refuses.
bool make_tensor_map(const TmaTensor& tensor, CUtensorMap* map);

/// Tokens first … of q, k, v or a gradient, seen as `down` rows of `across`; boxes of whole heads.
template <class T>
bool make_token_map(const ConstView& view, const Geometry& g, int first, int across, int down,
                    int box_across, int box_down, CUtensorMap* map) {
  const std::int64_t images = g.batch_heads / g.heads;
  return make_tensor_map({.data = static_cast<const T*>(view.data) + first * view.token_stride,
                          .type = kMapType<T>,
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
                          .type = kMapType<T>,
                          .sizes = {entries, g.padded_tokens, 1, g.batch_heads, 1},
                          .strides = {width, head, head, head * g.batch_heads},
                          .box = {box_entries, box_tokens, 1}},
                         map);
}

/// The same eight entries after eight: a box has the first ones of `box_tokens` tokens, then the
/// next, up to `eights` of them.
template <class T>
bool make_eights_map(const void* vectors, const Geometry& g, int eights, int width, int box_tokens,
                     CUtensorMap* map) {
  const std::int64_t head = std::int64_t(g.padded_tokens) * width;
  return make_tensor_map({.data = vectors,
                          .type = kMapType<T>,
                          .sizes = {8, g.padded_tokens, eights, g.batch_heads, 1},
                          .strides = {width, 8, head, head * g.batch_heads},
                          .box = {8, box_tokens, eights}},
                         map);
}

/// Float32 numbers, `each` of them a token; boxes of `box_tokens` tokens'.
inline bool make_scalar_map(const float* scalars, const Geometry& g, int each, int box_tokens,
                            CUtensorMap* map) {
  const std::int64_t head = std::int64_t(g.padded_tokens) * each;
  return make_tensor_map({.data = scalars,
                          .type = kMapType<float>,
                          .sizes = {head, 1, 1, g.batch_heads, 1},
                          .strides = {head, head, head, head * g.batch_heads},
                          .box = {each * box_tokens, 1, 1}},
                         map);
}

}  // namespace sape2::kernels::cuda
