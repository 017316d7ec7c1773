#pragma once

#include "draw/canvas.h"

#include <string>
#include <vector>

namespace sape2::draw {

struct ChartLine {
  std::string name;  ///< empty: not in the legend
  Rgb colour;
  double thickness = 2.5;
  std::vector<Point> points = {};
};

/// Lines over whole numbers: axes with ticks, the title on the left above `box`, the legend on the
/// right. Numbers and names of the axes stand outside the box.
void draw_line_chart(Canvas& canvas, const Box& box, const std::string& title,
                     const std::string& x_name, const std::vector<ChartLine>& lines);

}  // namespace sape2::draw
