#pragma once

#include <filesystem>
#include <string>

namespace sape2::cli {

/// The model file that an argument names: the file itself, or the best model of a run's folder.
std::filesystem::path model_file_of(const std::string& argument);

}  // namespace sape2::cli
