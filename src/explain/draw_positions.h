#pragma once

#include "explain/panels.h"

namespace sape2::explain {

/// One image, one line for each chosen patch: the image, the numbers that APE and RPE give every
/// patch, and the soft positions that each model sees from the chosen one; the models' captions at
/// the end.
void draw_positions(Canvas& canvas, double left, double top, const FigureRow& row,
                    const DrawOptions& options);

/// The size of that; `ruler` measures words.
std::pair<double, double> positions_size(Canvas& ruler, const FigureRow& row);

}  // namespace sape2::explain
