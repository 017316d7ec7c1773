#pragma once

#include "support/scratch_folder.h"

#include <filesystem>
#include <string>

namespace sape2::cli::test {

/// An untrained model of the classes of shapes, as the best of a run.
std::filesystem::path save_model(const sape2::testing::ScratchFolder& folder);

/// A grey picture of 50 by 40 pixels.
std::filesystem::path save_picture(const sape2::testing::ScratchFolder& folder,
                                   const std::string& name);

bool is_png(const std::filesystem::path& file);

}  // namespace sape2::cli::test
