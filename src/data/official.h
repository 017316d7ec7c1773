#pragma once

#include "sape2/data/dataset.h"

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

/// What is published of the data sets that can be fetched: files, addresses, sizes, checksums.
namespace sape2::data {

struct RemoteFile {
  std::string name;  ///< of the file itself
  std::string url;
  std::uint64_t bytes;
  std::string md5;
};

/// A data set of many small files, whose archives are unpacked with their folders.
struct FileTree {
  std::vector<std::string> parts;  ///< what a folder of it holds: folders and files, some of them
  std::function<bool(const std::filesystem::path& folder)> is_in;
  /// Of a file's path in an archive. What it accepts lies in one of the parts.
  std::function<bool(const std::string& path)> is_part;
  /// Throws Error where a folder is not what was published.
  std::function<void(const std::filesystem::path& folder)> check;
};

struct OfficialFiles {
  std::string name;
  std::string folder;                  ///< what the official archive calls its folder
  std::vector<std::string> files;      ///< what a complete folder holds; gzipped or not
  std::vector<std::string> checksums;  ///< MD5 of each file where published, otherwise empty
  std::vector<std::string> extras;     ///< welcome, not needed
  std::vector<RemoteFile> remote;      ///< one archive, those of a tree, or the files themselves
  bool remote_is_archive;
  std::string home;            ///< the page a person would look at
  std::string npm_package;     ///< empty: none
  std::string debian_package;  ///< empty: none
  std::function<Dataset(const std::filesystem::path& folder, Split split)> read;
  std::optional<FileTree> tree = {};  ///< in place of `files` and `checksums`
};

/// Throws for data sets that are not fetched.
const OfficialFiles& official_files(const std::string& name);

/// Whether the folder holds the file, as it is or with ".gz".
bool has_file(const std::filesystem::path& folder, const std::string& file);

}  // namespace sape2::data
