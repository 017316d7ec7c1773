#pragma once

#include "sape2/train/run_log.h"

#include <filesystem>
#include <string>

namespace sape2::train {

/// Whether this build can draw (the component "drawing").
bool can_draw_curves();

/// Draws loss and figures over the epochs as a PNG. Does nothing where it cannot draw.
void draw_curves(const RunHistory& history, const std::string& title,
                 const std::filesystem::path& file);

}  // namespace sape2::train
