#include "train/curves.h"

#include "sape2/components.h"

#if SAPE2_HAVE_DRAWING

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"
#include "sape2/base/round_step.h"
#include "sape2/io/atomic_file.h"

#include <cairo.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <exception>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace sape2::train {
namespace {

constexpr int kWidth = 1200, kHeight = 480;
constexpr double kTextSize = 15, kTitleSize = 18;
constexpr int kTicks = 5;  // about so many

struct Colour {
  double red, green, blue;
};
constexpr Colour kInk{0.15, 0.15, 0.18}, kGrid{0.88, 0.88, 0.90};
constexpr Colour kBlue{0.12, 0.42, 0.75}, kOrange{0.90, 0.45, 0.10}, kPaleBlue{0.70, 0.82, 0.95};

struct Line {
  std::string name;  // empty: not in the legend
  Colour colour;
  double thickness = 2.5;
  std::vector<std::pair<double, double>> points = {};
};

struct Range {
  double low, high;
};

struct Box {
  double left, top, width, height;
};

Range range_of(const std::vector<Line>& lines,
               double (*coordinate)(const std::pair<double, double>&)) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Range range{kInfinity, -kInfinity};
  for (const Line& line : lines) {
    for (const auto& point : line.points) {
      range.low = std::min(range.low, coordinate(point));
      range.high = std::max(range.high, coordinate(point));
    }
  }
  if (range.low > range.high) return {0, 1};
  if (range.high - range.low < 1e-9) return {range.low - 0.5, range.high + 0.5};
  return range;
}

class Picture {
 public:
  Picture()
      : surface_(cairo_image_surface_create(CAIRO_FORMAT_RGB24, kWidth, kHeight)),
        context_(cairo_create(surface_.get())) {
    set(Colour{1, 1, 1});
    cairo_paint(context_.get());
    cairo_select_font_face(context_.get(), "sans-serif", CAIRO_FONT_SLANT_NORMAL,
                           CAIRO_FONT_WEIGHT_NORMAL);
  }

  // `align`: 0 the text begins at x, 0.5 it is centred there, 1 it ends there.
  // Returns its width.
  double text(double x, double y, const std::string& words, double align, double size = kTextSize) {
    set(kInk);
    cairo_set_font_size(context_.get(), size);
    cairo_text_extents_t extents;
    cairo_text_extents(context_.get(), words.c_str(), &extents);
    cairo_move_to(context_.get(), x - align * extents.x_advance, y);
    cairo_show_text(context_.get(), words.c_str());
    return extents.x_advance;
  }

  void stroke(const std::vector<std::pair<double, double>>& points, Colour colour,
              double thickness) {
    set(colour);
    cairo_set_line_width(context_.get(), thickness);
    cairo_set_line_join(context_.get(), CAIRO_LINE_JOIN_ROUND);
    cairo_new_path(context_.get());
    for (const auto& [x, y] : points) cairo_line_to(context_.get(), x, y);
    cairo_stroke(context_.get());
  }

  void dot(double x, double y, Colour colour, double radius) {
    set(colour);
    cairo_new_path(context_.get());
    cairo_arc(context_.get(), x, y, radius, 0, 2 * M_PI);
    cairo_fill(context_.get());
  }

  void clip(Box box) {
    cairo_save(context_.get());
    cairo_rectangle(context_.get(), box.left, box.top, box.width, box.height);
    cairo_clip(context_.get());
  }
  void unclip() { cairo_restore(context_.get()); }

  void write(const std::filesystem::path& path);

 private:
  struct Destroy {
    void operator()(cairo_surface_t* surface) const { cairo_surface_destroy(surface); }
    void operator()(cairo_t* context) const { cairo_destroy(context); }
  };

  void set(Colour colour) {
    cairo_set_source_rgb(context_.get(), colour.red, colour.green, colour.blue);
  }

  std::unique_ptr<cairo_surface_t, Destroy> surface_;
  std::unique_ptr<cairo_t, Destroy> context_;
};

void Picture::write(const std::filesystem::path& path) {
  io::AtomicFile file(path);
  struct Sink {
    io::AtomicFile& file;
    std::exception_ptr failure;
  } sink{file, nullptr};
  // Exceptions must not pass through Cairo's C code.
  const auto pass_on = [](void* closure, const unsigned char* data, unsigned length) {
    auto& target = *static_cast<Sink*>(closure);
    try {
      target.file.write(std::as_bytes(std::span(data, length)));
      return CAIRO_STATUS_SUCCESS;
    } catch (...) {
      target.failure = std::current_exception();
      return CAIRO_STATUS_WRITE_ERROR;
    }
  };
  const cairo_status_t status = cairo_surface_write_to_png_stream(surface_.get(), pass_on, &sink);
  if (sink.failure) std::rethrow_exception(sink.failure);
  if (status != CAIRO_STATUS_SUCCESS) {
    throw Error("cannot draw " + in_quotes(path) + ": " + cairo_status_to_string(status));
  }
  file.commit();
}

void draw_panel(Picture& picture, Box box, const std::string& title,
                const std::vector<Line>& lines) {
  const Range xs = range_of(lines, [](const auto& point) { return point.first; });
  Range ys = range_of(lines, [](const auto& point) { return point.second; });
  const double y_step = base::round_step(ys.high - ys.low, kTicks);
  ys = {std::floor(ys.low / y_step) * y_step, std::ceil(ys.high / y_step) * y_step};
  const auto place_x = [&](double x) {
    return box.left + (x - xs.low) / (xs.high - xs.low) * box.width;
  };
  const auto place_y = [&](double y) {
    return box.top + box.height - (y - ys.low) / (ys.high - ys.low) * box.height;
  };

  picture.text(box.left, box.top - 14, title, 0, kTitleSize);
  for (double y = ys.low; y < ys.high + y_step / 2; y += y_step) {
    picture.stroke({{box.left, place_y(y)}, {box.left + box.width, place_y(y)}}, kGrid, 1);
    const double shown = std::abs(y) < y_step / 1e6 ? 0 : y;
    picture.text(box.left - 10, place_y(y) + 5, fmt::format("{:.4g}", shown), 1);
  }
  const double x_step = std::max(1.0, base::round_step(xs.high - xs.low, kTicks));
  for (double x = std::ceil(xs.low / x_step) * x_step; x <= xs.high + 1e-9; x += x_step) {
    picture.stroke({{place_x(x), box.top + box.height}, {place_x(x), box.top + box.height + 5}},
                   kInk, 1);
    picture.text(place_x(x), box.top + box.height + 24, fmt::format("{:.6g}", x), 0.5);
  }
  picture.stroke({{box.left, box.top + box.height}, {box.left + box.width, box.top + box.height}},
                 kInk, 1.2);
  picture.text(box.left + box.width / 2, box.top + box.height + 46, "epoch", 0.5);

  picture.clip({box.left - 4, box.top - 4, box.width + 8, box.height + 8});
  for (const Line& line : lines) {
    std::vector<std::pair<double, double>> placed;
    for (const auto& [x, y] : line.points) placed.emplace_back(place_x(x), place_y(y));
    picture.stroke(placed, line.colour, line.thickness);
    if (placed.size() == 1) picture.dot(placed[0].first, placed[0].second, line.colour, 4);
  }
  picture.unclip();

  double x = box.left + box.width;
  for (const Line& line : lines) {
    if (line.name.empty() || line.points.empty()) continue;
    x -= picture.text(x, box.top - 14, line.name, 1);
    picture.stroke({{x - 28, box.top - 19}, {x - 6, box.top - 19}}, line.colour, 3);
    x -= 48;
  }
}

}  // namespace

bool can_draw_curves() {
  return true;
}

void draw_curves(const RunHistory& history, const std::string& title,
                 const std::filesystem::path& file) {
  Line steps{"", kPaleBlue, 1.5}, train{"training", kBlue}, test{"test", kOrange};
  Line top1{"top-1", kBlue}, top5{"top-5", kOrange};
  const double steps_per_epoch = history.epochs.empty()
                                     ? 1
                                     : static_cast<double>(history.epochs.front().step) /
                                           static_cast<double>(history.epochs.front().epoch);
  for (const StepRecord& record : history.steps) {
    steps.points.emplace_back(static_cast<double>(record.step) / steps_per_epoch, record.loss);
  }
  for (const EpochRecord& record : history.epochs) {
    const auto epoch = static_cast<double>(record.epoch);
    train.points.emplace_back(epoch, record.train_loss);
    if (!record.test) continue;
    test.points.emplace_back(epoch, record.test->loss);
    top1.points.emplace_back(epoch, 100 * record.test->top1);
    top5.points.emplace_back(epoch, 100 * record.test->top5);
  }
  Picture picture;
  picture.text(kWidth / 2.0, 30, title, 0.5, kTitleSize);
  draw_panel(picture, {80, 84, 480, 320}, "loss", {steps, train, test});
  draw_panel(picture, {680, 84, 480, 320}, "accuracy in %", {top1, top5});
  picture.write(file);
}

}  // namespace sape2::train

#else

namespace sape2::train {

bool can_draw_curves() {
  return false;
}

void draw_curves(const RunHistory&, const std::string&, const std::filesystem::path&) {}

}  // namespace sape2::train

#endif
