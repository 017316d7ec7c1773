#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace sape2::data {

/// Where data sets are looked for, in this order: `root` where given, the folder named by the
/// environment variable SAPE2_DATA, the cache ($XDG_CACHE_HOME/sape2 or ~/.cache/sape2; without
/// HOME the system is asked for the home folder), and /usr/local/share/datasets and
/// /usr/share/datasets, where Debian puts them.
std::vector<std::filesystem::path> search_roots(const std::filesystem::path& root = {});

/// Where `get` puts data sets: the first that is set of those meant for writing: root,
/// SAPE2_DATA or the cache. An Error if there is none of them.
std::filesystem::path storage_root(const std::filesystem::path& root = {});

/// The folder that holds the files of a data set: in each root its subfolder of the data set's
/// name, the official archive's folder, or the root itself. Nothing if no file of it is found.
std::optional<std::filesystem::path> find_dataset(const std::string& name,
                                                  const std::filesystem::path& root = {});

}  // namespace sape2::data
