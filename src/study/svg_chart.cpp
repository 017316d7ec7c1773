#include "study/svg_chart.h"

#include "draw/axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

// Ours and not Cairo's, because the report's page styles it (light and dark) and shows values under
// the pointer. The axes are those of all charts.
namespace sape2::study {
namespace {

constexpr double kWidth = 640, kHeight = 340;
constexpr double kLeft = 54, kTop = 34, kRight = 16, kBottom = 46;
constexpr std::size_t kColours = 8;
constexpr int kTicks = 5;  // about so many

using Points = std::vector<std::pair<double, double>>;

class Chart {
 public:
  explicit Chart(const std::vector<ChartLine>& lines) : lines_(lines) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    double x_least = kInfinity, x_most = -kInfinity, y_least = kInfinity, y_most = -kInfinity;
    for (const ChartLine& line : lines) {
      for (const Points* points : {&line.points, &line.lower, &line.upper}) {
        for (const auto& [x, y] : *points) {
          x_least = std::min(x_least, x);
          x_most = std::max(x_most, x);
          y_least = std::min(y_least, y);
          y_most = std::max(y_most, y);
        }
      }
    }
    x_ = draw::tight_axis(x_least, x_most, kTicks, /*least_step=*/1);
    y_ = draw::rounded_axis(y_least, y_most, kTicks);
  }

  std::string draw(const std::string& title, const std::string& x_name) const {
    std::string svg = fmt::format(R"(<svg viewBox="0 0 {} {}" role="img" aria-label="{}">)", kWidth,
                                  kHeight, escaped_html(title));
    svg +=
        fmt::format(R"(<text x="{}" y="18" class="title">{}</text>)", kLeft, escaped_html(title));
    svg += axes(x_name);
    for (std::size_t i = 0; i < lines_.size(); ++i) svg += band(i);
    for (std::size_t i = 0; i < lines_.size(); ++i) svg += line(i);
    return svg + "</svg>\n";
  }

 private:
  double at_x(double x) const { return kLeft + x_.place_of(x) * (kWidth - kLeft - kRight); }
  double at_y(double y) const {
    return kHeight - kBottom - y_.place_of(y) * (kHeight - kTop - kBottom);
  }

  std::string axes(const std::string& x_name) const {
    std::string svg;
    for (const double y : y_.ticks()) {
      svg += fmt::format(R"(<line class="grid" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>)", kLeft,
                         kWidth - kRight, at_y(y), at_y(y));
      svg += fmt::format(R"(<text class="tick" x="{}" y="{:.1f}" text-anchor="end">{}</text>)",
                         kLeft - 8, at_y(y) + 4, draw::tick_text(y, y_.step));
    }
    for (const double x : x_.ticks()) {
      svg += fmt::format(R"(<text class="tick" x="{:.1f}" y="{}" text-anchor="middle">{}</text>)",
                         at_x(x), kHeight - kBottom + 18, draw::tick_text(x, x_.step));
    }
    svg += fmt::format(R"(<line class="axis" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>)", kLeft,
                       kWidth - kRight, at_y(y_.low), at_y(y_.low));
    svg += fmt::format(R"(<text class="tick" x="{:.1f}" y="{}" text-anchor="middle">{}</text>)",
                       (kLeft + kWidth - kRight) / 2, kHeight - 8, escaped_html(x_name));
    return svg;
  }

  std::string placed(const Points& points) const {
    std::string text;
    for (const auto& [x, y] : points) text += fmt::format("{:.1f},{:.1f} ", at_x(x), at_y(y));
    return text;
  }

  std::string band(std::size_t i) const {
    const ChartLine& line = lines_[i];
    if (line.lower.size() < 2) return "";
    const Points back(line.upper.rbegin(), line.upper.rend());
    return fmt::format(R"(<polygon class="band {}" points="{}{}"/>)", line_class(i),
                       placed(line.lower), placed(back));
  }

  std::string line(std::size_t i) const {
    const ChartLine& line = lines_[i];
    std::string svg = fmt::format(R"(<polyline class="line {}{}" points="{}"/>)", line_class(i),
                                  i >= kColours ? " again" : "", placed(line.points));
    for (const auto& [x, y] : line.points) {
      svg += fmt::format(
          R"(<circle class="dot {}" cx="{:.1f}" cy="{:.1f}" r="3"><title>{}, {:g}: {:.4g}</title></circle>)",
          line_class(i), at_x(x), at_y(y), escaped_html(line.name), x, y);
    }
    return svg;
  }

  const std::vector<ChartLine>& lines_;
  draw::Axis x_, y_;
};

}  // namespace

std::string svg_chart(const std::string& title, const std::string& x_name,
                      const std::vector<ChartLine>& lines) {
  return Chart(lines).draw(title, x_name);
}

std::string line_class(std::size_t index) {
  return fmt::format("s{}", index % kColours);
}

std::string escaped_html(const std::string& text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

}  // namespace sape2::study
