#include "data/get/verify.h"

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"

#include "data/get/md5.h"
#include "data/text.h"

#include <fmt/format.h>

namespace sape2::data {
namespace {

void verify_checksums(const OfficialFiles& official, const std::filesystem::path& folder) {
  for (std::size_t i = 0; i < official.files.size(); ++i) {
    const std::filesystem::path path = folder / official.files[i];
    const std::string md5 = md5_of_file(path);
    if (md5 != official.checksums[i]) {
      throw Error(fmt::format("{} is damaged: its MD5 is {}, expected {}", in_quotes(path), md5,
                              official.checksums[i]));
    }
  }
}

void verify_counts(const OfficialFiles& official, const std::filesystem::path& folder) {
  for (const Split split : {Split::train, Split::test}) {
    const Dataset dataset = official.read(folder, split);
    const std::int64_t expected = dataset.size() / dataset.classes();
    const std::vector<std::int64_t> counts = images_per_class(dataset);
    for (std::size_t i = 0; i < counts.size(); ++i) {
      if (counts[i] != expected) {
        throw Error(fmt::format("{} has {} {} images of the class {}, expected {}",
                                in_quotes(folder), counts[i], to_string(split),
                                in_quotes(dataset.class_names[i]), expected));
      }
    }
  }
}

}  // namespace

void verify(const OfficialFiles& official, const std::filesystem::path& folder) {
  if (official.tree) {
    official.tree->check(folder);
  } else if (official.checksums.empty()) {
    verify_counts(official, folder);
  } else {
    verify_checksums(official, folder);
  }
}

}  // namespace sape2::data
