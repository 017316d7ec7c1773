#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"
#include "sape2/components.h"
#include "sape2/explain/caption.h"
#include "sape2/explain/figure.h"

#if SAPE2_HAVE_DRAWING

#include "explain/draw_positions.h"
#include "explain/panels.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace sape2::explain {
namespace {

constexpr double kSide = 168, kHeader = 34, kRowTitle = 20, kModelTitle = 20, kPanelTitle = 26;
constexpr double kScaleFoot = 17, kRowFoot = 30;  // below the panels; before the next line
constexpr double kSheetSide = 92, kSheetText = 14, kSheetFoot = 10;
constexpr double kLeastWidth = 420;

std::string header_text(const Figure& figure) {
  static const std::vector<std::string> kTitles{"bias between patches", "x part of the bias",
                                                "y part of the bias",   "gates",
                                                "soft positions",       "attention"};
  return kTitles.at(static_cast<std::size_t>(figure.what));
}

void draw_header(Canvas& canvas, const Figure& figure, double width) {
  const std::string title = header_text(figure);
  canvas.text(kMargin, kMargin + 8, title, {.size = kTitleSize, .bold = true});
  const double used = canvas.text_width(title, kTitleSize, true) + 10;
  canvas.text(kMargin + used, kMargin + 8,
              canvas.fitted(to_string(figure.selection), width - 2 * kMargin - used, kTextSize),
              {.size = kTextSize, .colour = kFaintInk});
}

std::string image_title(const FigureRow& row) {
  return printable(row.label.empty() ? row.name : row.name + ", " + row.label);
}

// A wide image keeps its shape; so do maps of its grid.
Box panel_box(const FigureRow& row, double left, double top, double side) {
  return image_box(left, top, side, static_cast<double>(row.image.height),
                   static_cast<double>(row.image.width));
}

// One image: a line for each model, with the image at its left and the words below it.
class RowPainter {
 public:
  RowPainter(Canvas& canvas, const FigureRow& row, const DrawOptions& options)
      : canvas_(canvas), row_(row), options_(options) {}

  std::pair<double, double> size() {
    double width = 0, height = kRowTitle;
    for (const ModelPanels& panels : row_.models) {
      width = std::max(width, line_width(panels));
      height += line_height(panels);
    }
    return {width, height};
  }

  void draw(double left, double top) {
    canvas_.text(left, top + 10, image_title(row_), {.size = 10.5, .bold = true});
    top_ = top + kRowTitle;
    for (const ModelPanels& panels : row_.models) {
      left_ = left;
      draw_model(panels);
      top_ += line_height(panels);
    }
  }

 private:
  static double line_width(const ModelPanels& panels, const Box& box) {
    double width = box.width + static_cast<double>(panels.maps.size()) * (kGap + box.width);
    if (panels.matrix.defined()) width += kGap + kSide;
    return width + kGap + kScaleWidth;
  }
  double line_width(const ModelPanels& panels) const {
    return line_width(panels, panel_box(row_, 0, 0, kSide));
  }

  static double panel_height(const ModelPanels& panels, const Box& box) {
    return panels.matrix.defined() ? std::max(kSide, box.height) : box.height;
  }

  double line_height(const ModelPanels& panels) {
    return kModelTitle + kPanelTitle + panel_height(panels, panel_box(row_, 0, 0, kSide)) +
           kRowFoot + caption_height(canvas_, line_width(panels), panels);
  }

  void title(const Box& box, const std::string& words, const std::string& note,
             const Rgb& colour = kInk) {
    canvas_.text(box.left, box.top - 15, canvas_.fitted(words, box.width, kTextSize, true),
                 {.colour = colour, .bold = true});
    canvas_.text(box.left, box.top - 5, canvas_.fitted(note, box.width, 8),
                 {.size = 8, .colour = kFaintInk});
  }

  void draw_model(const ModelPanels& panels) {
    const double begin = left_, width = line_width(panels);
    canvas_.text(begin, top_ + 9,
                 canvas_.fitted(panels.title + "   sees: " + panels.prediction, width, kTextSize),
                 {.size = kTextSize, .colour = kFaintInk});
    const double top = top_ + kModelTitle + kPanelTitle;
    Box box = panel_box(row_, left_, top, kSide);
    const double height = panel_height(panels, box);
    title(box, "image", fmt::format("{}×{} patches", panels.grid.rows, panels.grid.cols));
    draw_image(canvas_, box, row_.image);
    draw_grid(canvas_, box, panels.grid);
    for (std::size_t i = 0; i < panels.patches.size(); ++i) {
      draw_mark(canvas_, box, panels.grid, panels.patches[i].patch, mark_colour(i));
    }
    left_ = box.right() + kGap;
    if (panels.matrix.defined()) draw_matrix(panels, top);
    for (std::size_t i = 0; i < panels.maps.size(); ++i) {
      box.left = left_;
      const ChosenPatch& chosen = panels.patches[i];
      title(box, fmt::format("from patch {},{}", chosen.patch.y, chosen.patch.x), chosen.role,
            mark_colour(i));
      draw_values(canvas_, box, panels.maps[i], panels.kind, options_.palette, panels.range);
      draw_mark(canvas_, box, panels.grid, chosen.patch, mark_colour(i));
      left_ = box.right() + kGap;
    }
    draw_scale(canvas_, left_ - 6, top, height, panels.kind, options_.palette, panels.range,
               panels.logit_factor);
    draw_caption(canvas_, begin, top + height + kScaleFoot, width, panels);
  }

  void draw_matrix(const ModelPanels& panels, double top) {
    const Box box{left_, top, kSide, kSide};
    title(box, "all patches", "row: from this patch; column: to that");
    draw_values(canvas_, box, panels.matrix, panels.kind, options_.palette, panels.range);
    // Ticks where the chosen patches' rows lie.
    const auto patches = static_cast<double>(panels.grid.patches());
    for (std::size_t i = 0; i < panels.patches.size(); ++i) {
      const Patch& patch = panels.patches[i].patch;
      const double number = static_cast<double>(patch.y * panels.grid.cols + patch.x) + 0.5;
      const double y = box.top + box.height * number / patches;
      canvas_.line(box.left - 7, y, box.left - 1, y, mark_colour(i), 2);
    }
    left_ = box.right() + kGap;
  }

  Canvas& canvas_;
  const FigureRow& row_;
  DrawOptions options_;
  double left_ = 0, top_ = 0;
};

std::string draw_rows(const Figure& figure, FigureFormat format, const DrawOptions& options) {
  const bool positions = figure.what == What::positions;
  Canvas ruler(FigureFormat::svg, 1, 1, options.dots_per_inch);  // for the widths of words
  const auto size_of = [&](const FigureRow& row) {
    if (!positions) return RowPainter(ruler, row, options).size();
    const auto [width, height] = positions_size(ruler, row);
    return std::pair(width, height + kRowTitle);
  };
  double width = kLeastWidth, height = kMargin + kHeader;
  for (const FigureRow& row : figure.rows) {
    const auto [row_width, row_height] = size_of(row);
    width = std::max(width, row_width);
    height += row_height;
  }
  width += 2 * kMargin;
  Canvas canvas(format, width, height, options.dots_per_inch);
  draw_header(canvas, figure, width);
  double top = kMargin + kHeader - 12;
  for (const FigureRow& row : figure.rows) {
    if (positions) {
      canvas.text(kMargin, top + 10, image_title(row), {.size = 10.5, .bold = true});
      draw_positions(canvas, kMargin, top + kRowTitle, row, options);
    } else {
      RowPainter(canvas, row, options).draw(kMargin, top);
    }
    top += size_of(row).second;
  }
  return std::move(canvas).bytes();
}

// Each image beside the maps from its first patch, one for each model.
std::string draw_sheet(const Figure& figure, FigureFormat format, const DrawOptions& options) {
  const auto images = static_cast<double>(figure.rows.size());
  const auto panels_a_cell = static_cast<double>(1 + figure.rows.front().models.size());
  const double cell_width = panels_a_cell * (kSheetSide + 4) + kGap;
  double cell_height = 0;
  for (const FigureRow& row : figure.rows) {
    cell_height = std::max(cell_height, panel_box(row, 0, 0, kSheetSide).height);
  }
  cell_height += kSheetText + 10;
  const double columns = std::clamp(std::round(std::sqrt(images * 0.8)), 1.0, 6.0);
  const double lines = std::ceil(images / columns);
  const double width = std::max(kLeastWidth, columns * cell_width + kScaleWidth) + 2 * kMargin;
  const ModelPanels& example = figure.rows.front().models.front();
  const double height = 2 * kMargin + kHeader + lines * cell_height + kSheetFoot;
  Canvas canvas(format, width, height, options.dots_per_inch);
  draw_header(canvas, figure, width);
  for (std::size_t i = 0; i < figure.rows.size(); ++i) {
    const FigureRow& row = figure.rows[i];
    const auto column = static_cast<double>(i % static_cast<std::size_t>(columns));
    const auto line = static_cast<double>(i / static_cast<std::size_t>(columns));
    const double left = kMargin + column * cell_width;
    const double top = kMargin + kHeader + line * cell_height;
    Box box = panel_box(row, left, top, kSheetSide);
    draw_image(canvas, box, row.image);
    const ModelPanels& first = row.models.front();
    draw_mark(canvas, box, first.grid, first.patches.front().patch, mark_colour(0));
    for (const ModelPanels& panels : row.models) {
      box.left = box.right() + 4;
      draw_values(canvas, box, panels.maps.front(), panels.kind, options.palette, panels.range);
      draw_mark(canvas, box, panels.grid, panels.patches.front().patch, mark_colour(0));
    }
    canvas.text(left, top + box.height + 10, canvas.fitted(image_title(row), cell_width - kGap, 8),
                {.size = 8});
  }
  draw_scale(canvas, kMargin + columns * cell_width, kMargin + kHeader,
             std::min(kSide, lines * cell_height - kSheetText - 10), example.kind, options.palette,
             example.range, example.logit_factor);
  canvas.text(kMargin, height - kMargin,
              canvas.fitted("each map is seen from the marked patch; " +
                                reading_text(example.kind, example.logit_factor),
                            width - 2 * kMargin, kTextSize),
              {.size = kTextSize});
  return std::move(canvas).bytes();
}

}  // namespace

std::string render_figure(const Figure& figure, FigureFormat format, const DrawOptions& options) {
  if (figure.rows.empty()) throw Error("there is no image to draw");
  return options.contact_sheet ? draw_sheet(figure, format, options)
                               : draw_rows(figure, format, options);
}

}  // namespace sape2::explain

#else

namespace sape2::explain {

std::string render_figure(const Figure&, FigureFormat, const DrawOptions&) {
  throw Error(
      "cannot draw figures: this build has no Cairo; install libcairo2-dev and build again");
}

}  // namespace sape2::explain

#endif
