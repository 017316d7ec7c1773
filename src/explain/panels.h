#pragma once

#include "sape2/explain/figure.h"

#include "draw/canvas.h"

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

/// The parts that figures are put together from.
namespace sape2::explain {

using draw::Box, draw::Canvas, draw::Raster;
using draw::kFaintInk, draw::kInk, draw::kPaper;

inline constexpr double kTextSize = 9, kTitleSize = 12, kMargin = 20, kGap = 18;
inline constexpr double kScaleWidth = 84;  ///< of a colour scale with its numbers

/// The largest box of an image's proportions in a square of `side`, its top left corner given.
Box image_box(double left, double top, double side, double height, double width);

/// The box of one patch.
Box patch_box(const Box& image, const infer::Grid& grid, const Patch& patch);

/// The colour that marks the patch of that number among the chosen ones.
Rgb mark_colour(std::size_t number);

void draw_image(Canvas& canvas, const Box& box, const data::Image& image);

/// Lines between patches, thinner the more there are.
void draw_grid(Canvas& canvas, const Box& box, const infer::Grid& grid);

/// An outline with a white edge, to be seen on any ground.
void draw_mark(Canvas& canvas, const Box& image, const infer::Grid& grid, const Patch& patch,
               const Rgb& colour);

/// Values [rows, cols] as colours.
void draw_values(Canvas& canvas, const Box& box, const at::Tensor& values, ScaleKind kind,
                 Palette palette, const ValueRange& range);

/// A vertical scale with round numbers, `kScaleWidth` wide, and what its ends mean. With a factor
/// that takes values into the logits, beside each number what it does to the weight, as in ×3.2.
void draw_scale(Canvas& canvas, double left, double top, double height, ScaleKind kind,
                Palette palette, const ValueRange& range,
                const std::optional<double>& logit_factor = std::nullopt);

/// Sentences in lines no wider than `width`, the warning last and in a colour of its own. Returns
/// the height they take.
double draw_caption(Canvas& canvas, double left, double top, double width,
                    const ModelPanels& panels);
double caption_height(Canvas& canvas, double width, const ModelPanels& panels);

/// "far" and "near" and their like: the upper and the lower end.
std::pair<std::string, std::string> ends_of(ScaleKind kind);

}  // namespace sape2::explain
