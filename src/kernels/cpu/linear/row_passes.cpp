// clang-format off: each SIMD target includes this file again.
#include "cpu/target.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/linear/row_passes.cpp"
#include <hwy/foreach_target.h>
// clang-format on

#include "cpu/linear/pass.h"
#include "cpu/math-inl.h"

#include <algorithm>
#include <cmath>

HWY_BEFORE_NAMESPACE();
namespace sape2::kernels::HWY_NAMESPACE {
namespace {

/// The `count` numbers left at the end of a row, the other lanes 0.
HWY_INLINE V load_some(const float* data, std::int64_t count) {
  alignas(64) float lanes[kLanes] = {};
  std::copy_n(data, count, lanes);
  return hn::Load(F(), lanes);
}

HWY_INLINE void store_some(V value, std::int64_t count, float* data) {
  alignas(64) float lanes[kLanes];
  hn::Store(value, F(), lanes);
  std::copy_n(lanes, count, data);
}

/// Σ of term(vector) over a row, with two sums under way; term(0) must be 0 where the row ends.
template <class Term>
HWY_INLINE float summed(const float* x, std::int64_t width, const Term& term) {
  const F f;
  V even = hn::Zero(f), odd = hn::Zero(f);
  std::int64_t c = 0;
  for (; c + 2 * kLanes <= width; c += 2 * kLanes) {
    even = hn::Add(even, term(hn::LoadU(f, x + c)));
    odd = hn::Add(odd, term(hn::LoadU(f, x + c + kLanes)));
  }
  for (; c + kLanes <= width; c += kLanes) even = hn::Add(even, term(hn::LoadU(f, x + c)));
  float rest = 0.0F;
  if (c < width) {
    alignas(64) float lanes[kLanes];
    hn::Store(term(load_some(x + c, width - c)), f, lanes);
    for (std::int64_t lane = 0; lane < width - c; ++lane) rest += lanes[lane];
  }
  return sum_of(hn::Add(even, odd)) + rest;
}

HWY_INLINE void normalise_row(const LayerNormParameters& parameters, std::int64_t width,
                              const float* x, float* y, const float* added) {
  const F f;
  const float mean = summed(x, width, [](V v) { return v; }) / static_cast<float>(width);
  const V centre = hn::Set(f, mean);
  const float squares = summed(x, width, [&](V v) {
    const V away = hn::Sub(v, centre);
    return hn::Mul(away, away);
  });
  const float variance = squares / static_cast<float>(width);
  const V inverse = hn::Set(f, 1.0F / std::sqrt(variance + parameters.epsilon));
  const auto normalised = [&](V v, V weight, V bias, V more) {
    const V result = hn::MulAdd(hn::Mul(hn::Sub(v, centre), inverse), weight, bias);
    return added ? hn::Add(result, more) : result;
  };
  std::int64_t c = 0;
  for (; c + kLanes <= width; c += kLanes) {
    const V more = added ? hn::LoadU(f, added + c) : hn::Zero(f);
    hn::StoreU(normalised(hn::LoadU(f, x + c), hn::LoadU(f, parameters.weight + c),
                          hn::LoadU(f, parameters.bias + c), more),
               f, y + c);
  }
  if (const std::int64_t left = width - c; left > 0) {
    const V more = added ? load_some(added + c, left) : hn::Zero(f);
    store_some(normalised(load_some(x + c, left), load_some(parameters.weight + c, left),
                          load_some(parameters.bias + c, left), more),
               left, y + c);
  }
}

}  // namespace

void normalise_rows(const LayerNormParameters& parameters, std::int64_t rows, std::int64_t width,
                    ConstRows x, Rows y, ConstRows added) {
  for (std::int64_t r = 0; r < rows; ++r) {
    normalise_row(parameters, width, x.data + r * x.stride, y.data + r * y.stride,
                  added.data ? added.data + r * added.stride : nullptr);
  }
}

void rotate_rows(std::int64_t rows, std::int64_t width, Rows x, ConstRows turns) {
  for (std::int64_t r = 0; r < rows; ++r) {
    float* row = x.data + r * x.stride;
    const float* turn = turns.data + r * turns.stride;
    for (std::int64_t c = 0; c < width; c += 2) {
      const float a = row[c], b = row[c + 1], cosine = turn[c], sine = turn[c + 1];
      row[c] = a * cosine - b * sine;
      row[c + 1] = a * sine + b * cosine;
    }
  }
}

}  // namespace sape2::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sape2::kernels {

HWY_EXPORT(normalise_rows);
HWY_EXPORT(rotate_rows);

void normalise_rows(const LayerNormParameters& parameters, std::int64_t rows, std::int64_t width,
                    ConstRows x, Rows y, ConstRows added) {
  HWY_DYNAMIC_DISPATCH(normalise_rows)(parameters, rows, width, x, y, added);
}

void rotate_rows(std::int64_t rows, std::int64_t width, Rows x, ConstRows turns) {
  HWY_DYNAMIC_DISPATCH(rotate_rows)(rows, width, x, turns);
}

}  // namespace sape2::kernels
#endif
