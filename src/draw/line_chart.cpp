#include "draw/line_chart.h"

#include "draw/axis.h"

#include <algorithm>
#include <limits>

namespace sape2::draw {
namespace {

constexpr double kTextSize = 15, kTitleSize = 18;
constexpr int kTicks = 5;  // about so many
constexpr Rgb kGrid{0.88, 0.88, 0.90};

struct Axes {
  Axis x, y;

  Point place(const Box& box, const Point& point) const {
    return {box.left + x.place_of(point.x) * box.width,
            box.bottom() - y.place_of(point.y) * box.height};
  }
};

Axes axes_of(const std::vector<ChartLine>& lines) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Point least{kInfinity, kInfinity}, most{-kInfinity, -kInfinity};
  for (const ChartLine& line : lines) {
    for (const Point& point : line.points) {
      least = {std::min(least.x, point.x), std::min(least.y, point.y)};
      most = {std::max(most.x, point.x), std::max(most.y, point.y)};
    }
  }
  return {tight_axis(least.x, most.x, kTicks, /*least_step=*/1),
          rounded_axis(least.y, most.y, kTicks)};
}

void draw_axes(Canvas& canvas, const Box& box, const Axes& axes, const std::string& x_name) {
  for (const double tick : axes.y.ticks()) {
    const double y = axes.place(box, {axes.x.low, tick}).y;
    canvas.line(box.left, y, box.right(), y, kGrid, 1);
    canvas.text(box.left - 10, y + 5, tick_text(tick, axes.y.step),
                {.size = kTextSize, .align = 1});
  }
  for (const double tick : axes.x.ticks()) {
    const double x = axes.place(box, {tick, axes.y.low}).x;
    canvas.line(x, box.bottom(), x, box.bottom() + 5, kInk, 1);
    canvas.text(x, box.bottom() + 24, tick_text(tick, axes.x.step),
                {.size = kTextSize, .align = 0.5});
  }
  canvas.line(box.left, box.bottom(), box.right(), box.bottom(), kInk, 1.2);
  canvas.text(box.left + box.width / 2, box.bottom() + 46, x_name,
              {.size = kTextSize, .align = 0.5});
}

void draw_legend(Canvas& canvas, const Box& box, const std::vector<ChartLine>& lines) {
  double x = box.right();
  for (const ChartLine& line : lines) {
    if (line.name.empty() || line.points.empty()) continue;
    canvas.text(x, box.top - 14, line.name, {.size = kTextSize, .align = 1});
    x -= canvas.text_width(line.name, kTextSize);
    canvas.line(x - 28, box.top - 19, x - 6, box.top - 19, line.colour, 3);
    x -= 48;
  }
}

}  // namespace

void draw_line_chart(Canvas& canvas, const Box& box, const std::string& title,
                     const std::string& x_name, const std::vector<ChartLine>& lines) {
  const Axes axes = axes_of(lines);
  canvas.text(box.left, box.top - 14, title, {.size = kTitleSize});
  draw_axes(canvas, box, axes, x_name);
  canvas.clipped({box.left - 4, box.top - 4, box.width + 8, box.height + 8}, [&] {
    for (const ChartLine& line : lines) {
      std::vector<Point> placed;
      for (const Point& point : line.points) placed.push_back(axes.place(box, point));
      canvas.polyline(placed, line.colour, line.thickness);
      if (placed.size() == 1) canvas.dot(placed[0], 4, line.colour);
    }
  });
  draw_legend(canvas, box, lines);
}

}  // namespace sape2::draw
