#pragma once

#include "sape2/draw/rgb.h"
#include "sape2/explain/view.h"

#include <string_view>
#include <vector>

namespace sape2::explain {

using draw::Rgb;

/// Which colours a scale uses.
enum class Palette {
  green,    ///< white (near) to green (far), and scales in its manner
  cividis,  ///< yellow to dark blue over greys, in order for every kind of colour vision
};
std::string_view to_string(Palette palette);
/// Throws Error if there is no such palette.
Palette parse_palette(std::string_view name);

/// The colour at `place`, 0 … 1, of a scale; balanced scales have 0 at the middle.
Rgb colour_at(ScaleKind kind, Palette palette, double place);

/// A whole scale in `count` steps.
std::vector<Rgb> colour_table(ScaleKind kind, Palette palette, int count);

/// What stands for a value that does not exist.
inline constexpr Rgb kNoValue{0.91, 0.91, 0.92};

/// The two ends of a scale's values.
struct ValueRange {
  double low = 0;
  double high = 1;

  /// Where a value lies, 0 … 1.
  double place_of(double value) const;
};

/// The range of a scale of that kind that shows values from `least` to `most`.
ValueRange range_for(ScaleKind kind, double least, double most);

/// Whether black text is easier to read than white on a colour.
bool is_light(const Rgb& colour);

}  // namespace sape2::explain
