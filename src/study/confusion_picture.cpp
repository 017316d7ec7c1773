#include "sape2/study/confusion_picture.h"

#include "sape2/base/error.h"
#include "sape2/components.h"

#if SAPE2_HAVE_DRAWING

#include "draw/canvas.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

namespace sape2::study {
namespace {

using draw::Canvas;

constexpr double kTitleSize = 18, kTextSize = 13;
constexpr double kMargin = 24;
constexpr std::int64_t kMostNamedClasses = 40;  // more names than that cannot be read
constexpr std::int64_t kMostNumberedClasses = 16;

double cell_size(std::int64_t classes) {
  if (classes <= kMostNumberedClasses) return 46;
  return classes <= kMostNamedClasses ? 20 : std::max(2.0, 800.0 / static_cast<double>(classes));
}

// White over pale blue to dark blue.
draw::Rgb share_colour(double share) {
  return {1 - 0.93 * share, 1 - 0.72 * share, 1 - 0.42 * share};
}

// Where things stand, in points.
struct Layout {
  double cell = 0, left = 0, top = 76, width = 0, height = 0;
  bool named = false;

  Layout(const ConfusionMatrix& matrix, const std::string& title)
      : cell(cell_size(matrix.classes)),
        named(!matrix.class_names.empty() && matrix.classes <= kMostNamedClasses) {
    Canvas ruler(draw::Format::png, 1, 1, draw::kPointsPerInch);
    double longest = 0;
    if (named) {
      for (const auto& name : matrix.class_names) {
        longest = std::max(longest, ruler.text_width(name, kTextSize));
      }
    }
    const double side = cell * static_cast<double>(matrix.classes);
    left = kMargin + longest + 12;
    width = std::max(left + side, kMargin + ruler.text_width(title, kTitleSize)) + kMargin;
    height = top + side + longest + 12 + kMargin;
  }

  draw::Box box(std::int64_t row, std::int64_t column) const {
    return {left + cell * static_cast<double>(column), top + cell * static_cast<double>(row), cell,
            cell};
  }
};

void draw_cell(Canvas& canvas, draw::Box box, double share, std::int64_t classes) {
  const double gap = classes <= kMostNamedClasses ? 1 : 0;
  canvas.fill({box.left, box.top, box.width - gap, box.height - gap}, share_colour(share));
  if (classes > kMostNumberedClasses || share < 0.005) return;
  canvas.text(box.left + box.width / 2, box.top + box.height / 2 + 5,
              fmt::format("{:.0f}", 100 * share),
              {.size = kTextSize, .colour = share > 0.5 ? draw::kPaper : draw::kInk, .align = 0.5});
}

void draw_cells(Canvas& canvas, const ConfusionMatrix& matrix, const Layout& layout) {
  const auto classes = static_cast<std::size_t>(matrix.classes);
  for (std::int64_t row = 0; row < matrix.classes; ++row) {
    const auto counts =
        std::span(matrix.counts).subspan(static_cast<std::size_t>(row) * classes, classes);
    std::int64_t sum = 0;
    for (const auto count : counts) sum += count;
    for (std::int64_t column = 0; column < matrix.classes; ++column) {
      const auto count = static_cast<double>(counts[static_cast<std::size_t>(column)]);
      draw_cell(canvas, layout.box(row, column), sum == 0 ? 0 : count / static_cast<double>(sum),
                matrix.classes);
    }
  }
}

void draw_names(Canvas& canvas, const ConfusionMatrix& matrix, const Layout& layout) {
  const double bottom = layout.box(matrix.classes, 0).top;
  for (std::int64_t i = 0; i < matrix.classes; ++i) {
    const std::string& name = matrix.class_names[static_cast<std::size_t>(i)];
    const draw::Box box = layout.box(i, i);
    canvas.text(layout.left - 8, box.top + box.height / 2 + 5, name,
                {.size = kTextSize, .align = 1});
    canvas.text(box.left + box.width / 2 + 4, bottom + 8, name,
                {.size = kTextSize, .align = 1, .upright = true});
  }
}

}  // namespace

void draw_confusion(const ConfusionMatrix& matrix, const std::string& title,
                    const std::filesystem::path& file) {
  const Layout layout(matrix, title);
  Canvas canvas(draw::Format::png, layout.width, layout.height, draw::kPointsPerInch);
  canvas.text(kMargin, 34, title, {.size = kTitleSize});
  canvas.text(kMargin, 58, "row: the true class; column: the one predicted; in % of the row",
              {.size = kTextSize});
  draw_cells(canvas, matrix, layout);
  if (layout.named) draw_names(canvas, matrix, layout);
  std::move(canvas).write(file);
}

}  // namespace sape2::study

#else

namespace sape2::study {

void draw_confusion(const ConfusionMatrix&, const std::string&, const std::filesystem::path& file) {
  throw Error("cannot draw \"" + file.native() +
              "\": this build has no Cairo; install libcairo2-dev and build again");
}

}  // namespace sape2::study

#endif
