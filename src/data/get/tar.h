#pragma once

#include "data/files.h"

#include <filesystem>
#include <functional>
#include <string>

namespace sape2::data {

/// Goes through the plain files of a gzipped tar archive. `take` gets the name (its folders left
/// out) and content of each file that `wanted` says yes to.
void read_tar_gz(const std::filesystem::path& path,
                 const std::function<bool(const std::string& name)>& wanted,
                 const std::function<void(const std::string& name, const Bytes& content)>& take);

}  // namespace sape2::data
