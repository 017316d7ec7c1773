// clang-format off: each SIMD target includes this file again.
#include "cpu/target.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/softmax.cpp"
#include <hwy/foreach_target.h>
// clang-format on

#include "cpu/layout.h"
#include "cpu/math-inl.h"
#include "cpu/softmax.h"

HWY_BEFORE_NAMESPACE();
namespace sape2::kernels::HWY_NAMESPACE {
namespace {

/// Walks the keys of a tile through the grid.
struct GridCursor {
  int x, y, cols;

  GridCursor(int key, int cols_) : x(key % cols_), y(key / cols_), cols(cols_) {}
  HWY_INLINE void next() {
    if (++x == cols) {
      x = 0;
      ++y;
    }
  }
};

/// The bias of key n, where the cursor stands.
template <TileBias::Kind kKind>
HWY_INLINE V bias_at(const TileBias& bias, const GridCursor& at, int n, int lane) {
  const F f;
  if constexpr (kKind == TileBias::Kind::tile) {
    return hn::LoadU(f, bias.tile + n * kTile + lane);
  } else {
    return hn::Add(hn::LoadU(f, bias.x + at.x * kTile + lane),
                   hn::LoadU(f, bias.y + at.y * kTile + lane));
  }
}

template <TileBias::Kind kKind>
HWY_INLINE V softmax_maximum(int rows, V scale, const TileBias& bias, int lane, float* scores) {
  const F f;
  const V factor = hn::Set(f, bias.factor);
  V top = hn::Set(f, -hwy::HighestValue<float>());
  GridCursor at(bias.first_key, bias.cols);
  const int biased = kKind == TileBias::Kind::none ? 0 : bias.rows;
  int n = 0;
  for (; n < biased; ++n) {
    float* score = scores + n * kTile + lane;
    const V b = bias_at<kKind>(bias, at, n, lane);
    at.next();
    const V logit = hn::MulAdd(factor, b, hn::Mul(scale, hn::LoadU(f, score)));
    hn::StoreU(logit, f, score);
    top = hn::Max(top, logit);
  }
  for (; n < rows; ++n) {
    float* score = scores + n * kTile + lane;
    const V logit = hn::Mul(scale, hn::LoadU(f, score));
    hn::StoreU(logit, f, score);
    top = hn::Max(top, logit);
  }
  return top;
}

}  // namespace

bool softmax_tile(int rows, int width, float scale, const TileBias& bias, float* scores,
                  const SoftmaxState& state) {
  const F f;
  const V by = hn::Set(f, scale);
  bool shrinks = false;
  for (int lane = 0; lane < width; lane += kLanes) {
    V top;
    switch (bias.kind) {
      case TileBias::Kind::none:
        top = softmax_maximum<TileBias::Kind::none>(rows, by, bias, lane, scores);
        break;
      case TileBias::Kind::tile:
        top = softmax_maximum<TileBias::Kind::tile>(rows, by, bias, lane, scores);
        break;
      default:
        top = softmax_maximum<TileBias::Kind::direct>(rows, by, bias, lane, scores);
    }
    const V before = hn::LoadU(f, state.maximum + lane);
    top = hn::Max(top, before);
    const V shrink = exp_of(hn::Sub(before, top));
    V sum = hn::Zero(f);
#pragma GCC unroll 4
    for (int n = 0; n < rows; ++n) {
      float* score = scores + n * kTile + lane;
      const V p = exp_of(hn::Sub(hn::LoadU(f, score), top));
      hn::StoreU(p, f, score);
      sum = hn::Add(sum, p);
    }
    hn::StoreU(top, f, state.maximum + lane);
    hn::StoreU(hn::MulAdd(shrink, hn::LoadU(f, state.sum + lane), sum), f, state.sum + lane);
    hn::StoreU(shrink, f, state.shrink + lane);
    shrinks = shrinks || !hn::AllTrue(f, hn::Eq(shrink, hn::Set(f, 1.0F)));
  }
  return shrinks;
}

namespace {

/// Σ P·dP. Writes P where the scores were if `kept` is not null.
template <TileBias::Kind kKind>
HWY_INLINE V delta_lanes(int rows, float scale, const TileBias& bias, int lane,
                         const SoftmaxResult& softmax, const float* scores,
                         const float* dprobabilities, float* kept = nullptr) {
  const F f;
  const V by = hn::Set(f, scale);
  const V factor = hn::Set(f, bias.factor);
  const V top = hn::LoadU(f, softmax.maximum + lane);
  const V inverse = hn::LoadU(f, softmax.inverse + lane);
  V sum = hn::Zero(f);
  GridCursor at(bias.first_key, bias.cols);
  const int biased = kKind == TileBias::Kind::none ? 0 : bias.rows;
  for (int n = 0; n < rows; ++n) {
    V logit = hn::Mul(by, hn::LoadU(f, scores + n * kTile + lane));
    if (n < biased) {
      logit = hn::MulAdd(factor, bias_at<kKind>(bias, at, n, lane), logit);
      at.next();
    }
    const V p = hn::Mul(inverse, exp_of(hn::Sub(logit, top)));
    if (kept) hn::StoreU(p, f, kept + n * kTile + lane);
    sum = hn::MulAdd(p, hn::LoadU(f, dprobabilities + n * kTile + lane), sum);
  }
  return sum;
}

}  // namespace

void softmax_delta_tile(int rows, int width, float scale, const TileBias& bias,
                        const SoftmaxResult& softmax, const float* scores,
                        const float* dprobabilities, float* delta) {
  const F f;
  for (int lane = 0; lane < width; lane += kLanes) {
    V sum;
    switch (bias.kind) {
      case TileBias::Kind::none:
        sum = delta_lanes<TileBias::Kind::none>(rows, scale, bias, lane, softmax, scores,
                                                dprobabilities);
        break;
      case TileBias::Kind::tile:
        sum = delta_lanes<TileBias::Kind::tile>(rows, scale, bias, lane, softmax, scores,
                                                dprobabilities);
        break;
      default:
        sum = delta_lanes<TileBias::Kind::direct>(rows, scale, bias, lane, softmax, scores,
                                                  dprobabilities);
    }
    hn::StoreU(hn::Add(sum, hn::LoadU(f, delta + lane)), f, delta + lane);
  }
}

namespace {

template <TileBias::Kind kKind, bool kWhole>
HWY_INLINE double gradient_lanes(int rows, float scale, const TileBias& bias, int lane,
                                 const SoftmaxResult& softmax, const float* delta, float* scores,
                                 float* dprobabilities, float* dx, float* dy) {
  const F f;
  const V by = hn::Set(f, scale);
  const V factor = hn::Set(f, bias.factor);
  const V top = hn::LoadU(f, softmax.maximum + lane);
  const V inverse = hn::LoadU(f, softmax.inverse + lane);
  // With all keys at hand, delta comes from P and dP themselves; P waits in place of the scores.
  const V mean =
      kWhole ? delta_lanes<kKind>(rows, scale, bias, lane, softmax, scores, dprobabilities, scores)
             : hn::LoadU(f, delta + lane);
  V bias_sum = hn::Zero(f);
  V row_sum = hn::Zero(f);
  GridCursor at(bias.first_key, bias.cols);
  const int biased = kKind == TileBias::Kind::none ? 0 : bias.rows;
  for (int n = 0; n < biased; ++n) {
    float* score = scores + n * kTile + lane;
    float* dprobability = dprobabilities + n * kTile + lane;
    const V b = bias_at<kKind>(bias, at, n, lane);
    V p = hn::LoadU(f, score);
    if constexpr (!kWhole) {
      const V logit = hn::MulAdd(factor, b, hn::Mul(by, p));
      p = hn::Mul(inverse, exp_of(hn::Sub(logit, top)));
    }
    const V ds = hn::Mul(hn::Mul(by, p), hn::Sub(hn::LoadU(f, dprobability), mean));
    hn::StoreU(p, f, dprobability);
    hn::StoreU(ds, f, score);
    if constexpr (kKind == TileBias::Kind::tile) {
      bias_sum = hn::MulAdd(ds, b, bias_sum);
    } else {
      float* column = dx + at.x * kTile + lane;
      hn::StoreU(hn::Add(ds, hn::LoadU(f, column)), f, column);
      row_sum = hn::Add(row_sum, ds);
      if (at.x + 1 == at.cols || n + 1 == biased) {
        float* row = dy + at.y * kTile + lane;
        hn::StoreU(hn::Add(row_sum, hn::LoadU(f, row)), f, row);
        row_sum = hn::Zero(f);
      }
      at.next();
    }
  }
  for (int n = biased; n < rows; ++n) {
    float* score = scores + n * kTile + lane;
    float* dprobability = dprobabilities + n * kTile + lane;
    V p = hn::LoadU(f, score);
    if constexpr (!kWhole) p = hn::Mul(inverse, exp_of(hn::Sub(hn::Mul(by, p), top)));
    const V ds = hn::Mul(hn::Mul(by, p), hn::Sub(hn::LoadU(f, dprobability), mean));
    hn::StoreU(p, f, dprobability);
    hn::StoreU(ds, f, score);
  }
  return kKind == TileBias::Kind::tile ? static_cast<double>(sum_of(bias_sum)) : 0.0;
}

template <TileBias::Kind kKind>
HWY_INLINE double gradient_tile(int rows, int width, float scale, const TileBias& bias,
                                const SoftmaxResult& softmax, const float* delta, float* scores,
                                float* dprobabilities, float* dx, float* dy) {
  double total = 0.0;
  for (int lane = 0; lane < width; lane += kLanes) {
    total += delta ? gradient_lanes<kKind, false>(rows, scale, bias, lane, softmax, delta, scores,
                                                  dprobabilities, dx, dy)
                   : gradient_lanes<kKind, true>(rows, scale, bias, lane, softmax, delta, scores,
                                                 dprobabilities, dx, dy);
  }
  return total;
}

}  // namespace

double softmax_gradient_tile(int rows, int width, float scale, const TileBias& bias,
                             const SoftmaxResult& softmax, const float* delta, float* scores,
                             float* dprobabilities, float* dx, float* dy) {
  switch (bias.kind) {
    case TileBias::Kind::none:
      return gradient_tile<TileBias::Kind::none>(rows, width, scale, bias, softmax, delta, scores,
                                                 dprobabilities, dx, dy);
    case TileBias::Kind::tile:
      return gradient_tile<TileBias::Kind::tile>(rows, width, scale, bias, softmax, delta, scores,
                                                 dprobabilities, dx, dy);
    default:
      return gradient_tile<TileBias::Kind::direct>(rows, width, scale, bias, softmax, delta, scores,
                                                   dprobabilities, dx, dy);
  }
}

}  // namespace sape2::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
