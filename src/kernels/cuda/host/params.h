#pragma once

#include "sape2/kernels/attention.h"

#include <cstdint>
#include <functional>

/// What the device code is told: plain numbers and device pointers.
namespace sape2::kernels::cuda {

/// `distance_pair`: two sets of vectors, whose distances add.
enum class BiasForm : std::uint8_t { none, direct, distance, distance_pair };

inline BiasForm bias_form(Form form, std::int64_t sets) {
  if (form == Form::direct) return BiasForm::direct;
  return sets == 1 ? BiasForm::distance : BiasForm::distance_pair;
}

template <BiasForm Form>
inline constexpr bool kIsDistance = Form == BiasForm::distance || Form == BiasForm::distance_pair;

/// One (image, head) after another, tokens padded so that every tile of 64 lies within.
struct Geometry {
  std::int64_t batch_heads;
  int heads;
  int rows, cols, prefix;
  int tokens, padded_tokens;
  int head_size;
  bool aligned;  // all rows of q, k, v, out and their gradients lie at multiples of 16 bytes
};

/// Axis vectors as attention reads them, in the inputs' type: (sets, batch_heads, padded_tokens,
/// width), zeros for tokens that are no patches. Width: cols or rows to the next 16. The distance
/// form has them shifted, and their squared lengths (sets, batch_heads, padded_tokens).
struct VectorBuffers {
  int sets;
  const void* x;
  const void* y;
  const float* norm_x;
  const float* norm_y;
  int width_x, width_y;
};

struct AttentionParams {
  Geometry geometry;
  float scale;
  const float* gain;  // (heads); null: all 1
  bool inside;
  VectorBuffers vectors;
  ConstView q, k, v;
  View out;
  SoftmaxRow* softmax;  // (batch_heads, tokens); forward: null if not wanted
};

struct AttentionBackwardParams {
  AttentionParams forward;
  ConstView out, dout;
  View dq, dk, dv;
  bool adds_to_dk;  // of patches, in the direct form's sm_90 kernels
  // (batch_heads, tokens): dout · out; for the sm_90 kernels (batch_heads, padded_tokens),
  // lse (base 2) and that, ∞ and 0 in the padding: pairs, or 64 of one and 64 of the other at
  // distance.
  float* delta;
  // As the vectors, in the inputs' type; the distance form's float32, but of sm_90 kernels.
  void* dx;
  void* dy;
  float* dgain;  // (batch_heads, row tiles): partial sums; null: not wanted
};

/// How a backward pass has left dq and the vectors' gradients to whoever goes on from there.
struct VectorGradients {
  bool fp32;         // they are float32, not of the inputs' type
  bool before_keys;  // dk and dv are still to come; patches' dk will be added to what is there
};

struct BackwardContinuation {
  std::function<void(const VectorGradients&)> from;  // called once
  bool can_begin_dk = false;  // for all patches, so that it may be called before the dk/dv pass
};

}  // namespace sape2::kernels::cuda
