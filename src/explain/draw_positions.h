#pragma once

#include "explain/panels.h"

namespace sape2::explain {

/// How wide one panel of numbers has to be for a grid, in points.
double numbers_side(const ops::Grid& grid);

/// One image, one line for each chosen patch: the image, the numbers that APE and RPE give every
/// patch, and the soft positions that each model sees from the chosen one. Returns its height.
double draw_positions(Canvas& canvas, double left, double top, const FigureRow& row,
                      const DrawOptions& options);

/// The size of that.
std::pair<double, double> positions_size(const FigureRow& row);

}  // namespace sape2::explain
