#pragma once

#include <array>
#include <cstdint>

/// One scene of `shapes`: what is drawn, without pixels. All numbers are whole; the image's side is
/// kSceneSide units.
namespace sape2::data {

inline constexpr std::int32_t kUnit = 64;  ///< units in 1/32 of the side
inline constexpr std::int32_t kSceneSide = 32 * kUnit;

using Colour = std::array<std::uint8_t, 3>;

enum class PatternKind : std::uint8_t { checks, stripes, diagonals, dots };
inline constexpr int kPatternKinds = 4;

/// A repeated pattern of two colours.
struct Pattern {
  PatternKind kind;
  std::int32_t period;
  std::int32_t phase_x, phase_y;
  std::array<Colour, 2> colours;

  /// Where a coordinate lies within the repeated tile.
  std::int32_t across(std::int32_t x) const;
  std::int32_t down(std::int32_t y) const;

  const Colour& at(std::int32_t across, std::int32_t down) const;
};

enum class ShapeKind : std::uint8_t {
  disc,
  ring,
  square,
  frame,
  triangle,
  cross,
  crescent,
  arch,
  bars,
  pair
};
inline constexpr int kShapeKinds = 10;
inline constexpr std::array<const char*, kShapeKinds> kShapeNames{
    "disc", "ring", "square", "frame", "triangle", "cross", "crescent", "arch", "bars", "pair"};

/// Whether (u, v), in the object's own frame, lies in a shape of this radius.
bool inside(ShapeKind kind, std::int32_t radius, std::int32_t u, std::int32_t v);

struct Scene {
  ShapeKind shape;
  std::int32_t centre_x, centre_y, radius;
  std::int32_t cosine, sine;  ///< of the object's angle, times 2^14
  Pattern background, texture;
};

}  // namespace sape2::data
