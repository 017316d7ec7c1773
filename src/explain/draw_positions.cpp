#include "explain/draw_positions.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

namespace sape2::explain {
namespace {

constexpr double kCell = 31, kLeastSide = 200, kMostSide = 500;
constexpr std::int64_t kMostNumbered = 16;  // along a side; more numbers than that cannot be read
constexpr double kPanelTitleHeight = 26, kFootHeight = 26, kCaptionRise = 6;

using Numbers = std::vector<std::string>;

bool numbered(const infer::Grid& grid) {
  return std::max(grid.rows, grid.cols) <= kMostNumbered;
}

std::string position_text(double value) {
  return fmt::format("{}{:.1f}", value <= -0.05 ? "−" : "", std::abs(value));
}

std::string whole_text(std::int64_t value) {
  return value < 0 ? fmt::format("−{}", -value) : fmt::format("{}", value);
}

// Values as colours, and numbers over them: one line or two.
void draw_numbers(Canvas& canvas, const Box& box, const infer::Grid& grid, const at::Tensor& values,
                  const DrawOptions& options, const ValueRange& range,
                  const std::function<Numbers(std::int64_t y, std::int64_t x)>& numbers) {
  draw_values(canvas, box, values, ScaleKind::distance, options.palette, range);
  if (!numbered(grid)) return;
  const at::Tensor wide = values.to(at::kDouble).contiguous();
  const auto entry = wide.accessor<double, 2>();
  for (std::int64_t y = 0; y < grid.rows; ++y) {
    for (std::int64_t x = 0; x < grid.cols; ++x) {
      const Box cell = patch_box(box, grid, {y, x});
      const Rgb ground =
          colour_at(ScaleKind::distance, options.palette, range.place_of(entry[y][x]));
      const Numbers lines = numbers(y, x);
      const double size = std::min(8.5, cell.width * (lines.size() > 1 ? 0.30 : 0.36));
      const double height = size * 1.15;
      double baseline = cell.top + cell.height / 2 + size * 0.36 -
                        height * (static_cast<double>(lines.size()) - 1) / 2;
      for (const std::string& words : lines) {
        canvas.text(cell.left + cell.width / 2, baseline, words,
                    {.size = size, .colour = is_light(ground) ? kInk : kPaper, .align = 0.5});
        baseline += height;
      }
    }
  }
}

// The distances of raster numbers, and of offsets: what colours APE's and RPE's panels.
at::Tensor raster_distance(const infer::Grid& grid, const Patch& from) {
  const at::Tensor number = at::arange(grid.patches(), at::kDouble).view({grid.rows, grid.cols});
  return (number - static_cast<double>(from.y * grid.cols + from.x)).abs();
}

at::Tensor offset_distance(const infer::Grid& grid, const Patch& from) {
  const at::Tensor y = (at::arange(grid.rows, at::kDouble) - static_cast<double>(from.y)).abs();
  const at::Tensor x = (at::arange(grid.cols, at::kDouble) - static_cast<double>(from.x)).abs();
  return y.unsqueeze(1) + x.unsqueeze(0);
}

ValueRange up_to_largest(const at::Tensor& values) {
  return range_for(ScaleKind::distance, 0, values.max().item<double>());
}

Numbers soft_numbers(const SoftPositions& seen, const infer::Grid& grid, std::int64_t y,
                     std::int64_t x) {
  const auto at = [](const std::vector<float>& curve, std::int64_t place) {
    return position_text(curve[static_cast<std::size_t>(place)]);
  };
  if (!seen.raster.empty()) return {at(seen.raster, y * grid.cols + x)};
  return {at(seen.x, x), at(seen.y, y)};
}

// The side of all panels of a row, in points.
double side_of(const FigureRow& row) {
  double side = 0;
  for (const ModelPanels& panels : row.models) {
    const std::int64_t longer = std::max(panels.grid.rows, panels.grid.cols);
    side = std::max(side, numbered(panels.grid) ? std::clamp(kCell * static_cast<double>(longer),
                                                             kLeastSide, kMostSide)
                                                : kLeastSide);
  }
  return side;
}

// Of several models a caption has to say whose it is.
ModelPanels labelled(ModelPanels panels, const FigureRow& row) {
  if (row.models.size() > 1) panels.captions.insert(panels.captions.begin(), panels.title + ":");
  return panels;
}

}  // namespace

std::pair<double, double> positions_size(Canvas& ruler, const FigureRow& row) {
  const ModelPanels& first = row.models.front();
  const Box box = image_box(0, 0, side_of(row), static_cast<double>(row.image.height),
                            static_cast<double>(row.image.width));
  const auto lines = static_cast<double>(first.patches.size());
  const auto columns = static_cast<double>(3 + row.models.size());
  const double width = columns * (box.width + kGap) - kGap;
  double words = 0;
  for (const ModelPanels& panels : row.models) {
    words += caption_height(ruler, width, labelled(panels, row));
  }
  return {width, lines * (kPanelTitleHeight + box.height + kFootHeight) + words};
}

void draw_positions(Canvas& canvas, double left, double top, const FigureRow& row,
                    const DrawOptions& options) {
  const ModelPanels& first = row.models.front();
  const double side = side_of(row);
  double y = top;
  for (std::size_t i = 0; i < first.patches.size(); ++i) {
    const ChosenPatch& chosen = first.patches[i];
    const Rgb mark = mark_colour(i);
    Box box = image_box(left, y + kPanelTitleHeight, side, static_cast<double>(row.image.height),
                        static_cast<double>(row.image.width));
    const auto title = [&](const std::string& words, const std::string& note) {
      canvas.text(box.left, box.top - 15, canvas.fitted(words, box.width, kTextSize, true),
                  {.bold = true});
      canvas.text(box.left, box.top - 5, canvas.fitted(note, box.width, 8),
                  {.size = 8, .colour = kFaintInk});
    };
    const auto finish = [&](const infer::Grid& grid, const Patch& patch) {
      draw_mark(canvas, box, grid, patch, mark);
      box.left = box.right() + kGap;
    };
    title(fmt::format("from patch {},{}", chosen.patch.y, chosen.patch.x), chosen.role);
    draw_image(canvas, box, row.image);
    draw_grid(canvas, box, first.grid);
    finish(first.grid, chosen.patch);

    title("APE", "a number for each place");
    const at::Tensor raster = raster_distance(first.grid, chosen.patch);
    draw_numbers(canvas, box, first.grid, raster, options, up_to_largest(raster),
                 [&](std::int64_t row_, std::int64_t col) {
                   return Numbers{whole_text(row_ * first.grid.cols + col)};
                 });
    finish(first.grid, chosen.patch);

    title("RPE", "offsets Δx over Δy");
    const at::Tensor offsets = offset_distance(first.grid, chosen.patch);
    draw_numbers(
        canvas, box, first.grid, offsets, options, up_to_largest(offsets),
        [&](std::int64_t row_, std::int64_t col) {
          return Numbers{whole_text(col - chosen.patch.x), whole_text(row_ - chosen.patch.y)};
        });
    finish(first.grid, chosen.patch);

    for (const ModelPanels& panels : row.models) {
      const SoftPositions& seen = panels.positions[i];
      title(panels.title,
            !seen.raster.empty() ? "soft position in raster order" : "soft positions x over y");
      draw_numbers(canvas, box, panels.grid, panels.maps[i], options, panels.range,
                   [&](std::int64_t row_, std::int64_t col) {
                     return soft_numbers(seen, panels.grid, row_, col);
                   });
      finish(panels.grid, panels.patches[i].patch);
    }
    if (!numbered(first.grid)) {
      canvas.text(left, box.bottom() + 13,
                  "colours only: numbers of more than 16 patches a side cannot be read; --npz has "
                  "them",
                  {.size = 8, .colour = kFaintInk});
    } else {
      canvas.text(left, box.bottom() + 13,
                  "colour: light is near the chosen patch, dark far, by each scheme's own numbers",
                  {.size = 8, .colour = kFaintInk});
    }
    y = box.bottom() + kFootHeight;
  }
  const double width = positions_size(canvas, row).first;
  for (const ModelPanels& panels : row.models) {
    y += draw_caption(canvas, left, y - kCaptionRise, width, labelled(panels, row));
  }
}

}  // namespace sape2::explain
