#pragma once

#include <cstdlib>
#include <filesystem>

namespace sape2::data::test {

/// While one of these lives, data sets are looked for and kept in a folder's `data` and `cache`
/// alone, away from those of this machine.
class OwnRoots {
 public:
  explicit OwnRoots(const std::filesystem::path& folder) {
    ::setenv("SAPE2_DATA", (folder / "data").c_str(), 1);
    ::setenv("XDG_CACHE_HOME", (folder / "cache").c_str(), 1);
  }
  ~OwnRoots() {
    ::unsetenv("SAPE2_DATA");
    ::unsetenv("XDG_CACHE_HOME");
  }
  OwnRoots(const OwnRoots&) = delete;
  OwnRoots& operator=(const OwnRoots&) = delete;
};

}  // namespace sape2::data::test
