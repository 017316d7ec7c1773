// clang-format off: each SIMD target includes this file again.
#include "cpu/target.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/axis.cpp"
#include <hwy/foreach_target.h>
// clang-format on

#include "cpu/axis.h"
#include "cpu/layout.h"
#include "cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sape2::kernels::HWY_NAMESPACE {
namespace {

/// Positions from `low` to `high` (inclusive) can occur at entry m of a line; table row of
/// position p is p + offset. Gates are at most 1, so fewer than all rows need a look.
struct Reach {
  int low, high, offset;
};

HWY_INLINE Reach reach_of(const Axis& axis, int m) {
  if (axis.span == Span::suffix) {
    const int most = axis.length + axis.behind - m;
    return {0, most < axis.positions ? most : axis.positions - 1, 0};
  }
  const int limit = (axis.positions - 1) / 2;
  const int left = axis.length - 1 - m;
  return {left < limit ? -left : -limit, m < limit ? m : limit, limit};
}

/// Up to so many table rows, comparing with every one beats looking one lane up after another.
constexpr int kShortReach = kLanes == 1 ? 0 : 2 * kLanes;

struct Neighbours {
  V below, above;  // table values at ⌊p⌋ and ⌈p⌉
};

HWY_INLINE Neighbours compare_all(Reach reach, const float* table, V floor, V ceil) {
  const F f;
  Neighbours result{hn::Zero(f), hn::Zero(f)};
  V at = hn::Set(f, static_cast<float>(reach.low));
  for (int t = reach.low; t <= reach.high; ++t) {
    const V value = hn::LoadU(f, table + (t + reach.offset) * kTile);
    result.below = hn::IfThenElse(hn::Eq(floor, at), value, result.below);
    result.above = hn::IfThenElse(hn::Eq(ceil, at), value, result.above);
    at = hn::Add(at, hn::Set(f, 1.0F));
  }
  return result;
}

/// A table row for any float, NaN and Inf too: never out of the table.
HWY_INLINE int safe_row(float whole, Reach reach) {
  const bool inside =
      whole >= static_cast<float>(reach.low) && whole <= static_cast<float>(reach.high);
  return (inside ? static_cast<int>(whole) : reach.low) + reach.offset;
}

HWY_INLINE Neighbours look_up(Reach reach, const float* table, V floor, V ceil) {
  const F f;
  HWY_ALIGN float below[kLanes];
  HWY_ALIGN float above[kLanes];
  hn::Store(floor, f, below);
  hn::Store(ceil, f, above);
  for (int lane = 0; lane < kLanes; ++lane) {
    below[lane] = table[safe_row(below[lane], reach) * kTile + lane];
    above[lane] = table[safe_row(above[lane], reach) * kTile + lane];
  }
  return {hn::Load(f, below), hn::Load(f, above)};
}

HWY_INLINE Neighbours neighbours(Reach reach, const float* table, V floor, V ceil) {
  return reach.high - reach.low < kShortReach ? compare_all(reach, table, floor, ceil)
                                              : look_up(reach, table, floor, ceil);
}

HWY_INLINE void add_at(Reach reach, V floor, V ceil, V below, V above, float* dtable) {
  const F f;
  if (reach.high - reach.low < kShortReach) {
    V at = hn::Set(f, static_cast<float>(reach.low));
    for (int t = reach.low; t <= reach.high; ++t) {
      float* row = dtable + (t + reach.offset) * kTile;
      V sum = hn::LoadU(f, row);
      sum = hn::Add(sum, hn::IfThenElseZero(hn::Eq(floor, at), below));
      sum = hn::Add(sum, hn::IfThenElseZero(hn::Eq(ceil, at), above));
      hn::StoreU(sum, f, row);
      at = hn::Add(at, hn::Set(f, 1.0F));
    }
    return;
  }
  HWY_ALIGN float rows[2][kLanes];
  HWY_ALIGN float parts[2][kLanes];
  hn::Store(floor, f, rows[0]);
  hn::Store(ceil, f, rows[1]);
  hn::Store(below, f, parts[0]);
  hn::Store(above, f, parts[1]);
  for (int side = 0; side < 2; ++side) {
    for (int lane = 0; lane < kLanes; ++lane) {
      dtable[safe_row(rows[side][lane], reach) * kTile + lane] += parts[side][lane];
    }
  }
}

/// A sum whose error does not grow with the number of parts (Kahan): summed plainly, a line of
/// hundreds of gates loses the digits that tell its positions apart.
struct RunningSum {
  V sum, excess;  // the excess is what rounding has added to the sum

  HWY_INLINE void add(V part) {
    const V due = hn::Sub(part, excess);
    const V next = hn::Add(sum, due);
    excess = hn::Sub(hn::Sub(next, sum), due);
    sum = next;
  }

  /// Starts again from 0 in the lanes that are not kept.
  template <class Mask>
  HWY_INLINE void keep(Mask kept) {
    sum = hn::IfThenElseZero(kept, sum);
    excess = hn::IfThenElseZero(kept, excess);
  }
};

HWY_INLINE RunningSum nothing_yet() {
  return {hn::Zero(F()), hn::Zero(F())};
}

/// What `carry` holds of one panel's lanes, or nothing yet where there is none.
HWY_INLINE RunningSum carried(const float* carry, int lane) {
  if (!carry) return nothing_yet();
  return {hn::LoadU(F(), carry + lane), hn::LoadU(F(), carry + kTile + lane)};
}

HWY_INLINE void carry_on(const RunningSum& running, float* carry, int lane) {
  if (!carry) return;
  hn::StoreU(running.sum, F(), carry + lane);
  hn::StoreU(running.excess, F(), carry + kTile + lane);
}

}  // namespace

void axis_positions(const Axis& axis, int width, float gate_scale, float gate_offset,
                    const float* scores, float* gates, float* positions, float* carry) {
  const F f;
  const V scale = hn::Set(f, gate_scale);
  const V offset = hn::Set(f, gate_offset);
  const bool suffix = axis.span == Span::suffix;
  const float bound = static_cast<float>(suffix ? axis.positions - 1 : (axis.positions - 1) / 2);
  for (int lane = 0; lane < width; lane += kLanes) {
    const V place = suffix ? hn::Zero(f) : hn::LoadU(f, axis.place + lane);
    // From the end of the line; for `between`, only entries before the patch count, negatively.
    RunningSum running = carried(carry, lane);
    for (int m = axis.length - 1; m >= 0; --m) {
      const int at = m * kTile + lane;
      const V gate = sigmoid_of(hn::MulAdd(scale, hn::LoadU(f, scores + at), offset));
      hn::StoreU(gate, f, gates + at);
      if (suffix) {
        running.add(gate);
        hn::StoreU(at_most(bound, running.sum), f, positions + at);
      } else {
        running.add(hn::Neg(gate));
        running.keep(hn::Lt(hn::Set(f, static_cast<float>(m)), place));
        hn::StoreU(at_least(-bound, running.sum), f, positions + at);
      }
    }
    carry_on(running, carry, lane);
    if (suffix) continue;
    running = nothing_yet();
    for (int m = 0; m < axis.length; ++m) {
      const int at = m * kTile + lane;
      const auto behind = hn::Gt(hn::Set(f, static_cast<float>(m)), place);
      running.add(hn::LoadU(f, gates + at));
      running.keep(behind);
      const V left = hn::LoadU(f, positions + at);
      hn::StoreU(hn::IfThenElse(behind, at_most(bound, running.sum), left), f, positions + at);
    }
  }
}

void axis_interpolate(const Axis& axis, int width, const float* positions, const float* table,
                      bool add, float* axes) {
  const F f;
  const V one = hn::Set(f, 1.0F);
  for (int m = 0; m < axis.length; ++m) {
    const Reach reach = reach_of(axis, m);
    for (int lane = 0; lane < width; lane += kLanes) {
      const V p = hn::LoadU(f, positions + m * kTile + lane);
      const V floor = hn::Floor(p);
      const Neighbours z = neighbours(reach, table + lane, floor, hn::Ceil(p));
      const V weight = hn::Sub(p, floor);
      V value = hn::MulAdd(weight, z.above, hn::Mul(hn::Sub(one, weight), z.below));
      float* out = axes + m * kTile + lane;
      if (add) value = hn::Add(value, hn::LoadU(f, out));
      hn::StoreU(value, f, out);
    }
  }
}

void axis_interpolate_gradient(const Axis& axis, int width, const float* positions,
                               const float* table, const float* daxes, float* dtable, bool add,
                               float* dpositions) {
  const F f;
  const V one = hn::Set(f, 1.0F);
  for (int m = 0; m < axis.length; ++m) {
    const Reach reach = reach_of(axis, m);
    for (int lane = 0; lane < width; lane += kLanes) {
      const int at = m * kTile + lane;
      const V p = hn::LoadU(f, positions + at);
      const V floor = hn::Floor(p);
      const V ceil = hn::Ceil(p);
      const V weight = hn::Sub(p, floor);
      const V du = hn::LoadU(f, daxes + at);
      const Neighbours z = neighbours(reach, table + lane, floor, ceil);
      add_at(reach, floor, ceil, hn::Mul(hn::Sub(one, weight), du), hn::Mul(weight, du),
             dtable + lane);
      // At an integer both neighbours are the same table row, so the slope is exactly 0.
      V slope = hn::Mul(du, hn::Sub(z.above, z.below));
      if (add) slope = hn::Add(slope, hn::LoadU(f, dpositions + at));
      hn::StoreU(slope, f, dpositions + at);
    }
  }
}

GateGradient axis_gate_gradient(const Axis& axis, int width, float gate_scale, const float* scores,
                                const float* gates, float* dpositions, float* carry) {
  const F f;
  const bool suffix = axis.span == Span::suffix;
  const V one = hn::Set(f, 1.0F);
  const V scale = hn::Set(f, gate_scale);
  GateGradient result;
  for (int lane = 0; lane < width; lane += kLanes) {
    const V place = suffix ? hn::Zero(f) : hn::LoadU(f, axis.place + lane);
    RunningSum running = carried(carry, lane);
    // dgates in place: a prefix sum; for `between` a negative one to the left of the patch …
    if (!suffix) {
      // … and a sum from the end to its right.
      for (int m = axis.length - 1; m >= 0; --m) {
        float* d = dpositions + m * kTile + lane;
        const auto behind = hn::Gt(hn::Set(f, static_cast<float>(m)), place);
        running.add(hn::IfThenElseZero(behind, hn::LoadU(f, d)));
        hn::StoreU(hn::IfThenElse(behind, running.sum, hn::LoadU(f, d)), f, d);
      }
      running = nothing_yet();
    }
    V scale_sum = hn::Zero(f);
    V offset_sum = hn::Zero(f);
    for (int m = 0; m < axis.length; ++m) {
      const int at = m * kTile + lane;
      float* d = dpositions + at;
      V dgate = hn::LoadU(f, d);
      if (suffix) {
        running.add(dgate);
        dgate = running.sum;
      } else {
        const V here = hn::Set(f, static_cast<float>(m));
        running.add(hn::IfThenElseZero(hn::Lt(here, place), hn::Neg(dgate)));
        const V left = hn::IfThenElseZero(hn::Lt(here, place), running.sum);
        dgate = hn::IfThenElse(hn::Gt(here, place), dgate, left);
      }
      const V gate = hn::LoadU(f, gates + at);
      const V dt = hn::Mul(dgate, hn::Mul(gate, hn::Sub(one, gate)));
      scale_sum = hn::MulAdd(dt, hn::LoadU(f, scores + at), scale_sum);
      offset_sum = hn::Add(offset_sum, dt);
      hn::StoreU(hn::Mul(scale, dt), f, d);
    }
    carry_on(running, carry, lane);
    result.scale += static_cast<double>(sum_of(scale_sum));
    result.offset += static_cast<double>(sum_of(offset_sum));
  }
  return result;
}

}  // namespace sape2::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
