#include "sape2/data/locations.h"

#include "sape2/base/error.h"

#include "data/official.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>

namespace sape2::data {
namespace fs = std::filesystem;
namespace {

fs::path from_environment(const char* variable) {
  const char* value = std::getenv(variable);
  return value ? fs::path(value) : fs::path();
}

// The user's home folder; empty if neither the environment nor the system knows one.
fs::path home() {
  const fs::path given = from_environment("HOME");
  if (!given.empty()) return given;
  std::array<char, 16384> text{};
  struct passwd entry {};
  struct passwd* found = nullptr;
  ::getpwuid_r(::geteuid(), &entry, text.data(), text.size(), &found);
  return found == nullptr ? fs::path() : fs::path(entry.pw_dir);
}

// Never a folder that others can write to, such as one in /tmp.
fs::path cache_root() {
  const fs::path cache = from_environment("XDG_CACHE_HOME");
  if (!cache.empty()) return cache / "sape2";
  const fs::path folder = home();
  return folder.empty() ? fs::path() : folder / ".cache" / "sape2";
}

}  // namespace

std::vector<fs::path> search_roots(const fs::path& root) {
  std::vector<fs::path> roots;
  for (const fs::path& candidate :
       {root, from_environment("SAPE2_DATA"), cache_root(), fs::path("/usr/local/share/datasets"),
        fs::path("/usr/share/datasets")}) {
    if (!candidate.empty()) roots.push_back(candidate);
  }
  return roots;
}

fs::path storage_root(const fs::path& root) {
  for (const fs::path& place : {root, from_environment("SAPE2_DATA"), cache_root()}) {
    if (!place.empty()) return place;
  }
  throw Error(
      "there is no home folder to keep data sets in; give a folder with --root, or set SAPE2_DATA");
}

std::optional<fs::path> find_dataset(const std::string& name, const fs::path& root) {
  const OfficialFiles& official = official_files(name);
  std::optional<fs::path> incomplete;
  for (const fs::path& place : search_roots(root)) {
    for (const fs::path& folder : {place / name, place / official.folder, place}) {
      if (official.tree) {
        if (official.tree->is_in(folder)) return folder;
        continue;
      }
      const auto present =
          std::count_if(official.files.begin(), official.files.end(),
                        [&](const std::string& file) { return has_file(folder, file); });
      if (present == static_cast<std::ptrdiff_t>(official.files.size())) return folder;
      if (present > 0 && !incomplete) incomplete = folder;
    }
  }
  return incomplete;
}

}  // namespace sape2::data
