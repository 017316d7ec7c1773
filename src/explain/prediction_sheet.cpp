#include "sape2/explain/prediction_sheet.h"

#include "sape2/base/error.h"
#include "sape2/components.h"
#include "sape2/io/atomic_file.h"

#include <fmt/format.h>

#if SAPE2_HAVE_DRAWING
#include "explain/panels.h"

#include <algorithm>
#include <cmath>
#endif

namespace sape2::explain {

std::string count_text(const std::vector<SeenPicture>& seen) {
  int known = 0, right = 0;
  for (const SeenPicture& one : seen) {
    if (one.picture.label.empty() || one.predictions.empty()) continue;
    ++known;
    if (one.predictions.front().name == one.picture.label) ++right;
  }
  return known == 0 ? ""
                    : fmt::format("{} of {} {} right", right, known, right == 1 ? "is" : "are");
}

void write_prediction_sheet(const std::filesystem::path& path, const std::string& title,
                            const std::vector<SeenPicture>& seen) {
  io::write_file(path, render_prediction_sheet(title, seen, figure_format(path)));
}

#if SAPE2_HAVE_DRAWING

namespace {

constexpr double kImageSide = 96, kCellGap = 22, kUnderImage = 34, kTitleHeight = 30;
constexpr double kMostColumns = 6;
constexpr std::size_t kMostPictures = 240;
constexpr Rgb kRight{0.10, 0.42, 0.22}, kWrong{0.72, 0.16, 0.14};

// Of the divisors of a sheet's size near a square, e.g. four columns for twelve pictures.
double columns_of(std::size_t pictures) {
  const auto count = static_cast<double>(pictures);
  return std::clamp(std::ceil(std::sqrt(count * 1.1)), 1.0, kMostColumns);
}

void draw_cell(Canvas& canvas, double left, double top, const SeenPicture& seen) {
  const data::Image& image = seen.picture.image;
  draw_image(canvas,
             image_box(left, top, kImageSide, static_cast<double>(image.height),
                       static_cast<double>(image.width)),
             image);
  if (seen.predictions.empty()) return;
  const study::Prediction& best = seen.predictions.front();
  const bool known = !seen.picture.label.empty(), right = best.name == seen.picture.label;
  const Rgb colour = !known ? kInk : right ? kRight : kWrong;
  const double baseline = top + kImageSide + 12;
  const std::string share = fmt::format("{:.0f} %", 100 * best.probability);
  const double room = kImageSide - canvas.text_width(share, kTextSize) - 4;
  canvas.text(left, baseline, canvas.fitted(best.name, room, kTextSize, true),
              {.size = kTextSize, .colour = colour, .bold = true});
  canvas.text(left + kImageSide, baseline, share,
              {.size = kTextSize, .colour = kFaintInk, .align = 1});
  canvas.fill({left, baseline + 4, kImageSide * best.probability, 2}, colour);
  if (known && !right) {
    canvas.text(left, baseline + 16,
                canvas.fitted("is: " + seen.picture.label, kImageSide, kTextSize),
                {.size = kTextSize, .colour = kFaintInk});
  }
}

}  // namespace

std::string render_prediction_sheet(const std::string& title, const std::vector<SeenPicture>& seen,
                                    FigureFormat format, double dots_per_inch) {
  if (seen.empty()) throw Error("there is no image to draw");
  if (seen.size() > kMostPictures) {
    throw Error(
        fmt::format("{} images are given; a sheet shows at most {}", seen.size(), kMostPictures));
  }
  const double columns = columns_of(seen.size());
  const double lines = std::ceil(static_cast<double>(seen.size()) / columns);
  const double width = 2 * kMargin + columns * (kImageSide + kCellGap) - kCellGap;
  const double height = 2 * kMargin + kTitleHeight + lines * (kImageSide + kUnderImage);
  Canvas canvas(format, width, height, dots_per_inch);
  const double room = width - 2 * kMargin;
  canvas.text(kMargin, kMargin + 8, canvas.fitted(title, room, kTitleSize, true),
              {.size = kTitleSize, .bold = true});
  canvas.text(kMargin, kMargin + 21, count_text(seen), {.size = kTextSize, .colour = kFaintInk});
  for (std::size_t i = 0; i < seen.size(); ++i) {
    const auto column = static_cast<double>(i % static_cast<std::size_t>(columns));
    const auto line = static_cast<double>(i / static_cast<std::size_t>(columns));
    draw_cell(canvas, kMargin + column * (kImageSide + kCellGap),
              kMargin + kTitleHeight + line * (kImageSide + kUnderImage), seen[i]);
  }
  return std::move(canvas).bytes();
}

#else

std::string render_prediction_sheet(const std::string&, const std::vector<SeenPicture>&,
                                    FigureFormat, double) {
  throw Error(
      "cannot draw figures: this build has no Cairo; install libcairo2-dev and build again");
}

#endif

}  // namespace sape2::explain
