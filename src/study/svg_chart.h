#pragma once

#include <string>
#include <utility>
#include <vector>

namespace sape2::study {

struct ChartLine {
  std::string name;
  std::vector<std::pair<double, double>> points;      ///< (x, y), x rising
  std::vector<std::pair<double, double>> lower = {};  ///< a band around the line, or nothing
  std::vector<std::pair<double, double>> upper = {};
};

/// A chart of lines as an SVG element: axes, a band where given, a value under the pointer. Colours
/// come from the style sheet's classes `s0` … `s7`, so that charts and legend agree.
std::string svg_chart(const std::string& title, const std::string& x_name,
                      const std::vector<ChartLine>& lines);

/// The class of a line's colour.
std::string line_class(std::size_t index);

/// Text with &, <, > and quotes made harmless.
std::string escaped_html(const std::string& text);

}  // namespace sape2::study
