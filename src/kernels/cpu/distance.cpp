// clang-format off: each SIMD target includes this file again.
#include "cpu/target.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/distance.cpp"
#include <hwy/foreach_target.h>
// clang-format on

#include "cpu/distance.h"
#include "cpu/layout.h"
#include "cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sape2::kernels::HWY_NAMESPACE {
namespace {

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SCALAR
constexpr int kRows = 4;
constexpr int kMaxVectors = 2;
constexpr int kComponents = 4;
constexpr int kGradientVectors = 1;
#else
constexpr int kRows = 4;
constexpr int kMaxVectors = 4;
constexpr int kComponents = 4;
constexpr int kGradientVectors = 2;
#endif

struct Root {
  V distance, inverse;
};

/// √s and 1/√s from one approximation, refined to about one ulp; both 0 for s = 0.
HWY_INLINE Root root_of(V s) {
  const F f;
#if HWY_TARGET == HWY_AVX3
  const V approximate = hn::ApproximateReciprocalSqrt(s);  // 14 bits
  const V half = hn::Mul(hn::Set(f, 0.5F), approximate);
  const V root = hn::Mul(s, approximate);
  const V error = hn::NegMulAdd(root, half, hn::Set(f, 0.5F));
  Root result{hn::MulAdd(root, error, root), hn::MulAdd(approximate, error, approximate)};
#else
  const V root = hn::Sqrt(s);
  Root result{root, hn::Div(hn::Set(f, 1.0F), root)};
#endif
  // Below the smallest normal number a square counts as 0. NaN and Inf fail the comparison.
  const auto zero = hn::Lt(s, hn::Set(f, 1.17549435e-38F));
  result.distance = hn::IfThenElse(zero, hn::Zero(f), result.distance);
  result.inverse = hn::IfThenElse(zero, hn::Zero(f), result.inverse);
  return result;
}

template <int kVectors>
HWY_NOINLINE void distance_block(int depth, const float* HWY_RESTRICT keys,
                                 const float* HWY_RESTRICT queries, bool add,
                                 float* HWY_RESTRICT distance, float* HWY_RESTRICT inverse) {
  const F f;
  V sum[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::Zero(f);
  }
  for (int c = 0; c < depth; ++c) {
    V query[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) query[v] = hn::LoadU(f, queries + v * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const V key = hn::Set(f, keys[r]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        const V difference = hn::Sub(query[v], key);
        sum[r][v] = hn::MulAdd(difference, difference, sum[r][v]);
      }
    }
    keys += kTile;
    queries += kTile;
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const Root root = root_of(sum[r][v]);
      float* out = distance + r * kTile + v * kLanes;
      hn::StoreU(add ? hn::Add(root.distance, hn::LoadU(f, out)) : root.distance, f, out);
      if (inverse) hn::StoreU(root.inverse, f, inverse + r * kTile + v * kLanes);
    }
  }
}

}  // namespace

void distance_tile(int depth, int rows, int width, const float* keys, const float* queries,
                   bool add, float* distance, float* inverse) {
  for (int lane = 0; lane < width;) {
    const int vectors = (width - lane) / kLanes;
    const int take = vectors < kMaxVectors ? vectors : kMaxVectors;
    for (int r = 0; r < rows; r += kRows) {
      const int at = r * kTile + lane;
      float* inverse_at = inverse ? inverse + at : nullptr;
      if (take == 1)
        distance_block<1>(depth, keys + r, queries + lane, add, distance + at, inverse_at);
      if (take == 2)
        distance_block<2>(depth, keys + r, queries + lane, add, distance + at, inverse_at);
      if constexpr (kMaxVectors > 2) {
        if (take == 3)
          distance_block<3>(depth, keys + r, queries + lane, add, distance + at, inverse_at);
        if (take == 4)
          distance_block<4>(depth, keys + r, queries + lane, add, distance + at, inverse_at);
      }
    }
    lane += take * kLanes;
  }
}

namespace {

template <int kCount, int kVectors>
HWY_NOINLINE void gradient_block(int rows, const float* HWY_RESTRICT weights,
                                 const float* HWY_RESTRICT keys, const float* HWY_RESTRICT queries,
                                 float* HWY_RESTRICT dqueries) {
  const F f;
  V query[kCount][kVectors];
  V sum[kCount][kVectors];
#pragma GCC unroll 8
  for (int c = 0; c < kCount; ++c) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      query[c][v] = hn::LoadU(f, queries + c * kTile + v * kLanes);
      sum[c][v] = hn::Zero(f);
    }
  }
  for (int n = 0; n < rows; ++n) {
    V weight[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) weight[v] = hn::LoadU(f, weights + v * kLanes);
#pragma GCC unroll 8
    for (int c = 0; c < kCount; ++c) {
      const V key = hn::Set(f, keys[c * kTile + n]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        sum[c][v] = hn::MulAdd(weight[v], hn::Sub(query[c][v], key), sum[c][v]);
      }
    }
    weights += kTile;
  }
#pragma GCC unroll 8
  for (int c = 0; c < kCount; ++c) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      float* out = dqueries + c * kTile + v * kLanes;
      hn::StoreU(hn::Add(sum[c][v], hn::LoadU(f, out)), f, out);
    }
  }
}

template <int kVectors>
HWY_INLINE void gradient_lanes(int depth, int rows, const float* weights, const float* keys,
                               const float* queries, float* dqueries) {
  int c = 0;
  for (; c + kComponents <= depth; c += kComponents) {
    gradient_block<kComponents, kVectors>(rows, weights, keys + c * kTile, queries + c * kTile,
                                          dqueries + c * kTile);
  }
  for (; c < depth; ++c) {
    gradient_block<1, kVectors>(rows, weights, keys + c * kTile, queries + c * kTile,
                                dqueries + c * kTile);
  }
}

}  // namespace

void distance_gradient(int depth, int rows, int width, const float* weights, const float* keys,
                       const float* queries, float* dqueries) {
  constexpr int kStep = kGradientVectors * kLanes;
  int lane = 0;
  for (; lane + kStep <= width; lane += kStep) {
    gradient_lanes<kGradientVectors>(depth, rows, weights + lane, keys, queries + lane,
                                     dqueries + lane);
  }
  for (; lane < width; lane += kLanes) {
    gradient_lanes<1>(depth, rows, weights + lane, keys, queries + lane, dqueries + lane);
  }
}

}  // namespace sape2::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
