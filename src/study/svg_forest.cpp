#include "study/svg_forest.h"

#include "draw/axis.h"
#include "study/svg_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace sape2::study {
namespace {

constexpr int kForestTicks = 5;
constexpr double kForestWidth = 640, kForestSide = 24, kForestTop = 34, kForestFoot = 46,
                 kRowHeight = 44;

class Forest {
 public:
  explicit Forest(const std::vector<ForestRow>& rows) : rows_(rows) {
    double least = 0, most = 0;
    for (const ForestRow& row : rows) {
      const Interval point{row.difference.mean, row.difference.mean};
      const Interval span = row.difference.interval.value_or(point);
      least = std::min(least, span.low);
      most = std::max(most, span.high);
    }
    x_ = draw::rounded_axis(least, most, kForestTicks);
    bottom_ = kForestTop + kRowHeight * static_cast<double>(rows.size());
  }

  std::string draw(const std::string& title, const std::string& x_name) const {
    std::string svg = fmt::format(R"(<svg viewBox="0 0 {} {}" role="img" aria-label="{}">)",
                                  kForestWidth, bottom_ + kForestFoot, escaped_html(title));
    svg += text(kForestSide, 18, "title", "start", title);
    svg += ticks();
    svg += text(kForestWidth / 2, bottom_ + kForestFoot - 8, "tick", "middle", x_name);
    for (std::size_t i = 0; i < rows_.size(); ++i) svg += row(i);
    return svg + "</svg>\n";
  }

 private:
  double at_x(double value) const {
    return kForestSide + x_.place_of(value) * (kForestWidth - 2 * kForestSide);
  }

  static std::string text(double x, double y, const char* style, const char* anchor,
                          const std::string& words) {
    return fmt::format(R"(<text x="{:.1f}" y="{:.1f}" class="{}" text-anchor="{}">{}</text>)", x, y,
                       style, anchor, escaped_html(words));
  }

  std::string ticks() const {
    std::string svg;
    for (const double value : x_.ticks()) {
      const bool zero = std::abs(value) < x_.step / 2;
      svg += fmt::format(R"(<line class="{}" x1="{:.1f}" x2="{:.1f}" y1="{}" y2="{:.1f}"/>)",
                         zero ? "axis" : "grid", at_x(value), at_x(value), kForestTop, bottom_);
      svg +=
          text(at_x(value), bottom_ + 18, "tick", "middle",
               fmt::format("{}{}", value > 0 && !zero ? "+" : "", draw::tick_text(value, x_.step)));
    }
    return svg;
  }

  std::string row(std::size_t i) const {
    const ForestRow& row = rows_[i];
    const double top = kForestTop + kRowHeight * static_cast<double>(i), y = top + 30;
    std::string svg = text(kForestSide, top + 17, "label", "start", row.label) +
                      text(kForestWidth - kForestSide, top + 17, "tick", "end", row.text);
    if (const auto& interval = row.difference.interval) {
      svg += fmt::format(R"(<polyline class="line {}" points="{:.1f},{:.1f} {:.1f},{:.1f}"/>)",
                         row.colour, at_x(interval->low), y, at_x(interval->high), y);
    }
    return svg + fmt::format(R"(<circle class="dot {}" cx="{:.1f}" cy="{:.1f}" r="5"/>)",
                             row.colour, at_x(row.difference.mean), y);
  }

  const std::vector<ForestRow>& rows_;
  draw::Axis x_;
  double bottom_ = 0;
};

}  // namespace

std::string svg_forest(const std::string& title, const std::string& x_name,
                       const std::vector<ForestRow>& rows) {
  return Forest(rows).draw(title, x_name);
}

}  // namespace sape2::study
