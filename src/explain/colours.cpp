#include "sape2/explain/colours.h"

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"
#include "sape2/base/nearest_name.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace sape2::explain {
namespace {

// Stops at even distances. Each sequence falls in lightness from end to end, so that it survives
// being printed in grey.
constexpr Rgb kGreen[] = {{1, 1, 1},          {0.86, 0.95, 0.84}, {0.63, 0.85, 0.62},
                          {0.33, 0.69, 0.40}, {0.11, 0.49, 0.25}, {0, 0.27, 0.12}};
constexpr Rgb kBlue[] = {{1, 1, 1},          {0.86, 0.91, 0.97}, {0.63, 0.78, 0.92},
                         {0.32, 0.56, 0.81}, {0.12, 0.33, 0.63}, {0.04, 0.15, 0.38}};
constexpr Rgb kViolet[] = {{1, 1, 1},          {0.92, 0.89, 0.96}, {0.78, 0.71, 0.88},
                           {0.58, 0.47, 0.75}, {0.39, 0.23, 0.59}, {0.22, 0.05, 0.38}};
constexpr Rgb kBlueToOrange[] = {{0.03, 0.19, 0.45}, {0.16, 0.45, 0.72}, {0.60, 0.79, 0.91},
                                 {1, 1, 1},          {0.98, 0.76, 0.51}, {0.85, 0.42, 0.10},
                                 {0.47, 0.17, 0.02}};
constexpr Rgb kCividis[] = {{1.00, 0.92, 0.36}, {0.82, 0.75, 0.42}, {0.64, 0.60, 0.47},
                            {0.48, 0.48, 0.48}, {0.33, 0.36, 0.44}, {0.14, 0.24, 0.43},
                            {0.00, 0.13, 0.30}};

std::span<const Rgb> stops(ScaleKind kind, Palette palette) {
  if (kind == ScaleKind::balanced) return kBlueToOrange;  // tells apart for every vision as it is
  if (palette == Palette::cividis) return kCividis;
  if (kind == ScaleKind::share) return kBlue;
  return kind == ScaleKind::gate ? std::span<const Rgb>(kViolet) : std::span<const Rgb>(kGreen);
}

}  // namespace

std::string_view to_string(Palette palette) {
  return palette == Palette::green ? "green" : "cividis";
}

Palette parse_palette(std::string_view name) {
  if (name == "green") return Palette::green;
  if (name == "cividis") return Palette::cividis;
  throw Error("there are no colours " + in_quotes(name) + "; " +
              name_advice(name, {"green", "cividis"}));
}

Rgb colour_at(ScaleKind kind, Palette palette, double place) {
  const auto scale = stops(kind, palette);
  const double at = std::clamp(place, 0.0, 1.0) * static_cast<double>(scale.size() - 1);
  const auto below = std::min(static_cast<std::size_t>(at), scale.size() - 2);
  const double weight = at - static_cast<double>(below);
  const Rgb &a = scale[below], &b = scale[below + 1];
  return {std::lerp(a.red, b.red, weight), std::lerp(a.green, b.green, weight),
          std::lerp(a.blue, b.blue, weight)};
}

std::vector<Rgb> colour_table(ScaleKind kind, Palette palette, int count) {
  std::vector<Rgb> table;
  for (int i = 0; i < count; ++i) {
    table.push_back(colour_at(kind, palette, static_cast<double>(i) / (count - 1)));
  }
  return table;
}

double ValueRange::place_of(double value) const {
  return high > low ? (value - low) / (high - low) : 0;
}

ValueRange range_for(ScaleKind kind, double least, double most) {
  const bool usable = std::isfinite(least) && std::isfinite(most) && least <= most;
  if (kind == ScaleKind::gate || !usable) return {0, 1};
  if (kind == ScaleKind::balanced) {
    const double largest = std::max(std::abs(least), std::abs(most));
    return largest > 0 ? ValueRange{-largest, largest} : ValueRange{-1, 1};
  }
  return most > 0 ? ValueRange{0, most} : ValueRange{0, 1};
}

bool is_light(const Rgb& colour) {
  return 0.30 * colour.red + 0.59 * colour.green + 0.11 * colour.blue > 0.55;
}

}  // namespace sape2::explain
