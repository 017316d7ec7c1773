#pragma once

#include "data/files.h"

#include <filesystem>
#include <functional>
#include <string>

namespace sape2::data {

/// Goes through the plain files of a gzipped tar archive. `take` gets the path in the archive, as
/// it is written there, and the content of each file that `wanted` says yes to.
void read_tar_gz(const std::filesystem::path& archive,
                 const std::function<bool(const std::string& path)>& wanted,
                 const std::function<void(const std::string& path, const Bytes& content)>& take);

/// Such a path without its folders.
std::string file_name(const std::string& path);

}  // namespace sape2::data
