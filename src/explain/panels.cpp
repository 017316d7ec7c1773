#include "explain/panels.h"

#include "sape2/explain/caption.h"

#include "draw/axis.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace sape2::explain {
namespace {

constexpr double kBarWidth = 11;
constexpr int kBarSteps = 128;
constexpr double kTallScale = 120;  // points; room for more numbers
constexpr double kCaptionLine = 13, kCaptionGap = 8;
constexpr Rgb kWarningInk{0.66, 0.25, 0.02};

// All sentences in one paragraph, the warning in one of its own.
std::vector<std::string> paragraphs_of(const ModelPanels& panels) {
  std::vector<std::string> paragraphs;
  if (!panels.captions.empty())
    paragraphs.push_back(fmt::format("{}", fmt::join(panels.captions, " ")));
  if (!panels.warning.empty()) paragraphs.push_back(panels.warning);
  return paragraphs;
}

}  // namespace

Box image_box(double left, double top, double side, double height, double width) {
  const double scale = side / std::max(height, width);
  return {left, top, width * scale, height * scale};
}

Box patch_box(const Box& image, const infer::Grid& grid, const Patch& patch) {
  const double width = image.width / static_cast<double>(grid.cols);
  const double height = image.height / static_cast<double>(grid.rows);
  return {image.left + width * static_cast<double>(patch.x),
          image.top + height * static_cast<double>(patch.y), width, height};
}

Rgb mark_colour(std::size_t number) {
  // Orange, blue, magenta and brown: apart from one another for every vision, and from green.
  constexpr std::array<Rgb, 4> kColours{Rgb{0.90, 0.35, 0.00}, Rgb{0.05, 0.35, 0.80},
                                        Rgb{0.75, 0.10, 0.55}, Rgb{0.40, 0.25, 0.10}};
  return kColours[number % kColours.size()];
}

void draw_image(Canvas& canvas, const Box& box, const data::Image& image) {
  Raster raster{image.height, image.width, {}};
  const auto count = static_cast<std::size_t>(image.height * image.width);
  const auto channels = static_cast<std::size_t>(image.channels);
  raster.pixels.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto at = [&](std::size_t channel) {
      return image.pixels[i * channels + std::min(channel, channels - 1)] / 255.0;
    };
    raster.pixels.push_back({at(0), at(1), at(2)});
  }
  canvas.raster(box, raster);
}

void draw_grid(Canvas& canvas, const Box& box, const infer::Grid& grid) {
  const double cell = box.width / static_cast<double>(grid.cols);
  const double thickness = std::clamp(cell / 24, 0.15, 0.8);
  const double opacity = std::clamp(cell / 12, 0.25, 0.75);
  for (std::int64_t x = 1; x < grid.cols; ++x) {
    const double at = box.left + cell * static_cast<double>(x);
    canvas.line(at, box.top, at, box.bottom(), kPaper, thickness, opacity);
  }
  const double row = box.height / static_cast<double>(grid.rows);
  for (std::int64_t y = 1; y < grid.rows; ++y) {
    const double at = box.top + row * static_cast<double>(y);
    canvas.line(box.left, at, box.right(), at, kPaper, thickness, opacity);
  }
}

void draw_mark(Canvas& canvas, const Box& image, const infer::Grid& grid, const Patch& patch,
               const Rgb& colour) {
  Box box = patch_box(image, grid, patch);
  // A tiny patch is marked by a frame around it.
  constexpr double kLeastMark = 7;
  const double more = std::max(0.0, (kLeastMark - std::min(box.width, box.height)) / 2);
  box = {box.left - more, box.top - more, box.width + 2 * more, box.height + 2 * more};
  canvas.outline(box, kPaper, 3.4);
  canvas.outline(box, colour, 1.9);
}

void draw_values(Canvas& canvas, const Box& box, const at::Tensor& values, ScaleKind kind,
                 Palette palette, const ValueRange& range) {
  const at::Tensor wide = values.to(at::kDouble).contiguous();
  const auto entry = wide.accessor<double, 2>();
  Raster raster{values.size(0), values.size(1), {}};
  raster.pixels.reserve(static_cast<std::size_t>(values.numel()));
  for (std::int64_t y = 0; y < values.size(0); ++y) {
    for (std::int64_t x = 0; x < values.size(1); ++x) {
      const double value = entry[y][x];
      raster.pixels.push_back(std::isfinite(value) ? colour_at(kind, palette, range.place_of(value))
                                                   : kNoValue);
    }
  }
  canvas.raster(box, raster);
  canvas.outline(box, kFaintInk, 0.5);
}

std::pair<std::string, std::string> ends_of(ScaleKind kind) {
  switch (kind) {
    case ScaleKind::distance:
      return {"far", "near"};
    case ScaleKind::balanced:
      return {"more", "less"};
    case ScaleKind::share:
      return {"much", "none"};
    case ScaleKind::gate:
      return {"open", "closed"};
  }
  return {};
}

void draw_scale(Canvas& canvas, double left, double top, double height, ScaleKind kind,
                Palette palette, const ValueRange& range,
                const std::optional<double>& logit_factor) {
  const auto table = colour_table(kind, palette, kBarSteps);
  Raster raster{kBarSteps, 1, {table.rbegin(), table.rend()}};
  const Box bar{left, top, kBarWidth, height};
  canvas.raster(bar, raster);
  canvas.outline(bar, kFaintInk, 0.5);
  const bool percent = kind == ScaleKind::share;
  const double unit = percent ? 100 : 1;
  const auto ticks =
      draw::round_ticks(range.low * unit, range.high * unit, height > kTallScale ? 6 : 4);
  const double step = ticks.size() > 1 ? ticks[1] - ticks[0] : 0;
  double widest = 0;
  for (const double tick : ticks) {
    const double y = bar.bottom() - range.place_of(tick / unit) * height;
    canvas.line(bar.right(), y, bar.right() + 3, y, kInk, 0.6);
    const std::string words = draw::tick_text(tick, step) + (percent ? " %" : "");
    canvas.text(bar.right() + 5, y + 2.8, words, {.size = 8});
    widest = std::max(widest, canvas.text_width(words, 8));
  }
  const auto [upper, lower] = ends_of(kind);
  canvas.text(left, top - 5, upper, {.size = 8, .colour = kFaintInk});
  canvas.text(left, bar.bottom() + 11, lower, {.size = 8, .colour = kFaintInk});
  if (!logit_factor || (kind != ScaleKind::distance && kind != ScaleKind::balanced)) return;
  const double column = bar.right() + 5 + widest + 8;
  for (const double tick : ticks) {
    const double y = bar.bottom() - range.place_of(tick) * height;
    canvas.text(column, y + 2.8, factor_text(*logit_factor * tick),
                {.size = 8, .colour = kFaintInk});
  }
  canvas.text(column, top - 5, "weight", {.size = 8, .colour = kFaintInk});
}

double caption_height(Canvas& canvas, double width, const ModelPanels& panels) {
  double lines = 0;
  for (const std::string& words : paragraphs_of(panels)) {
    lines += static_cast<double>(canvas.wrapped(words, width, kTextSize).size());
  }
  return lines > 0 ? lines * kCaptionLine + kCaptionGap : 0;
}

double draw_caption(Canvas& canvas, double left, double top, double width,
                    const ModelPanels& panels) {
  double y = top;
  for (const std::string& words : paragraphs_of(panels)) {
    const Rgb colour = words == panels.warning ? kWarningInk : kInk;
    for (const std::string& line : canvas.wrapped(words, width, kTextSize)) {
      y += kCaptionLine;
      canvas.text(left, y - 3, line, {.size = kTextSize, .colour = colour});
    }
  }
  return caption_height(canvas, width, panels);
}

}  // namespace sape2::explain
