#include "data/shapes/scene.h"

#include <algorithm>
#include <cstdlib>

namespace sape2::data {
namespace {

std::int32_t wrapped(std::int32_t x, std::int32_t period) {
  const std::int32_t rest = x % period;
  return rest < 0 ? rest + period : rest;
}

std::int64_t squared(std::int64_t x) {
  return x * x;
}

bool in_disc(std::int64_t u, std::int64_t v, std::int64_t radius) {
  return squared(u) + squared(v) <= squared(radius);
}

}  // namespace

std::int32_t Pattern::across(std::int32_t x) const {
  return wrapped(x + phase_x, period);
}

std::int32_t Pattern::down(std::int32_t y) const {
  return wrapped(y + phase_y, period);
}

const Colour& Pattern::at(std::int32_t across, std::int32_t down) const {
  bool second = false;
  switch (kind) {
    case PatternKind::checks:
      second = (2 * across < period) != (2 * down < period);
      break;
    case PatternKind::stripes:
      second = 2 * across < period;
      break;
    case PatternKind::diagonals:
      second = 2 * wrapped(across + down, period) < period;
      break;
    case PatternKind::dots:
      second =
          9 * (squared(2 * across - period) + squared(2 * down - period)) < 4 * squared(period);
      break;
  }
  return colours[second];
}

bool inside(ShapeKind kind, std::int32_t radius, std::int32_t u, std::int32_t v) {
  const std::int32_t r = radius, across = std::abs(u), down = std::abs(v);
  const auto part = [r](std::int32_t percent) { return r * percent / 100; };
  switch (kind) {
    case ShapeKind::disc:
      return in_disc(u, v, r);
    case ShapeKind::ring:
      return in_disc(u, v, r) && !in_disc(u, v, part(55));
    case ShapeKind::square:
      return std::max(across, down) <= part(82);
    case ShapeKind::frame:
      return std::max(across, down) <= part(85) && std::max(across, down) > part(45);
    case ShapeKind::triangle:
      return v <= part(65) && 5 * across <= 3 * (v + part(90));
    case ShapeKind::cross:
      return std::min(across, down) <= part(28) && std::max(across, down) <= part(95);
    case ShapeKind::crescent:
      return in_disc(u, v, r) && !in_disc(u - part(48), v, part(80));
    case ShapeKind::arch:
      return across <= part(85) && down <= part(90) && !(across <= part(40) && v >= -part(40));
    case ShapeKind::bars:
      return across <= part(90) && down >= part(40) && down <= part(85);
    case ShapeKind::pair:
      return in_disc(across - part(58), v, part(40));
  }
  return false;
}

}  // namespace sape2::data
