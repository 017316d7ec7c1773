#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace sape2::cli {

/// Throws Error if the file to write is one of those that the command reads, under whatever name:
/// what was there would be lost. Names of no file, such as images of a data set, are passed over.
void refuse_to_overwrite(const std::string& out, const std::vector<std::filesystem::path>& read);

}  // namespace sape2::cli
