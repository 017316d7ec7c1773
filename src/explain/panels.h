#pragma once

#include "explain/canvas.h"

#include <ATen/core/Tensor.h>

#include <string>

/// The parts that figures are put together from.
namespace sape2::explain {

inline constexpr double kTextSize = 9, kTitleSize = 12, kMargin = 20, kGap = 18;
inline constexpr double kScaleWidth = 58;  ///< of a colour scale with its numbers

/// The largest box of an image's proportions in a square of `side`, its top left corner given.
Box image_box(double left, double top, double side, double height, double width);

/// The box of one patch.
Box patch_box(const Box& image, const ops::Grid& grid, const Patch& patch);

/// The colour that marks the patch of that number among the chosen ones.
Rgb mark_colour(std::size_t number);

void draw_image(Canvas& canvas, const Box& box, const data::Image& image);

/// Lines between patches, thinner the more there are.
void draw_grid(Canvas& canvas, const Box& box, const ops::Grid& grid);

/// An outline with a white edge, to be seen on any ground.
void draw_mark(Canvas& canvas, const Box& image, const ops::Grid& grid, const Patch& patch,
               const Rgb& colour);

/// Values [rows, cols] as colours.
void draw_values(Canvas& canvas, const Box& box, const at::Tensor& values, ScaleKind kind,
                 Palette palette, const ValueRange& range);

/// A vertical scale with numbers, `kScaleWidth` wide, and what its ends mean.
void draw_scale(Canvas& canvas, double left, double top, double height, ScaleKind kind,
                Palette palette, const ValueRange& range);

/// "far" and "near" and their like: the upper and the lower end.
std::pair<std::string, std::string> ends_of(ScaleKind kind);

/// A number of few digits with a proper minus.
std::string number_text(double value, int digits = 3);

}  // namespace sape2::explain
