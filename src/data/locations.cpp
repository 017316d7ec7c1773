#include "sape2/data/locations.h"

#include "data/official.h"

#include <algorithm>
#include <cstdlib>

namespace sape2::data {
namespace fs = std::filesystem;
namespace {

fs::path from_environment(const char* variable) {
  const char* value = std::getenv(variable);
  return value ? fs::path(value) : fs::path();
}

fs::path cache_root() {
  const fs::path cache = from_environment("XDG_CACHE_HOME");
  if (!cache.empty()) return cache / "sape2";
  const fs::path home = from_environment("HOME");
  return (home.empty() ? fs::temp_directory_path() : home / ".cache") / "sape2";
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
  return search_roots(root).front();
}

std::optional<fs::path> find_dataset(const std::string& name, const fs::path& root) {
  const OfficialFiles& official = official_files(name);
  std::optional<fs::path> incomplete;
  for (const fs::path& place : search_roots(root)) {
    for (const fs::path& folder : {place / name, place / official.folder, place}) {
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
