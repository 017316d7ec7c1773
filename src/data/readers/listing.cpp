#include "data/readers/listing.h"

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"
#include "sape2/data/random.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace sape2::data {
namespace fs = std::filesystem;
namespace {

bool is_hidden(const fs::path& path) {
  return path.filename().native().starts_with('.');
}

std::string lower_extension(const fs::path& path) {
  std::string extension = path.extension();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return extension;
}

// What a path leads to; a loop of symbolic links or a lack of permission is an Error.
fs::file_status status_of(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::none || status.type() == fs::file_type::unknown) {
    throw Error(fmt::format("cannot read {}: {}", in_quotes(path), error.message()));
  }
  return status;
}

// An image in a format we cannot read is not passed over in silence.
bool is_image(const fs::path& path) {
  static const std::set<std::string> readable{".png", ".jpg", ".jpeg"};
  static const std::set<std::string> foreign{".gif",  ".webp", ".bmp",  ".tif",
                                             ".tiff", ".ppm",  ".heic", ".avif"};
  const std::string extension = lower_extension(path);
  if (foreign.contains(extension)) {
    throw Error(
        fmt::format("cannot read the image {}: only PNG and JPEG files are read", in_quotes(path)));
  }
  return readable.contains(extension);
}

}  // namespace

std::vector<fs::path> children(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> result;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (!is_hidden(it->path())) result.push_back(it->path());
  }
  if (error) {
    throw Error(fmt::format("cannot read the folder {}: {}", in_quotes(folder), error.message()));
  }
  std::sort(result.begin(), result.end());
  return result;
}

bool is_folder(const fs::path& path) {
  return fs::is_directory(status_of(path));
}

std::vector<fs::path> image_files(const fs::path& folder) {
  std::vector<fs::path> images;
  for (const fs::path& child : children(folder)) {
    if (fs::is_regular_file(status_of(child)) && is_image(child)) images.push_back(child);
  }
  return images;
}

SplitFolders split_folders(const fs::path& folder) {
  const fs::path train = folder / "train";
  fs::path test = folder / "test";
  if (!is_folder(test)) test = folder / "val";
  if (!is_folder(train)) return {};
  if (!is_folder(test)) {
    throw Error(fmt::format("{} has a folder \"train\" but neither \"test\" nor \"val\" beside it",
                            in_quotes(folder)));
  }
  return {train, test};
}

std::vector<std::int64_t> drawn_part(std::int64_t count, std::uint64_t group, Split split,
                                     const LoadOptions& options) {
  const auto wanted = std::llround(static_cast<double>(count) * options.test_share);
  const std::int64_t tests = std::clamp<std::int64_t>(wanted, 1, count - 1);
  const std::vector<std::int64_t> order =
      shuffled(count, Draws(options.seed, 0, group, Purpose::split));
  std::vector<std::int64_t> chosen(split == Split::test ? order.begin() : order.begin() + tests,
                                   split == Split::test ? order.begin() + tests : order.end());
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

void check_test_share(const LoadOptions& options) {
  if (!(options.test_share > 0 && options.test_share < 1)) {
    throw Error(
        fmt::format("the test share is {}, expected a number between 0 and 1", options.test_share));
  }
}

void copy_as_planes(const Image& image, std::uint8_t* target) {
  const std::int64_t plane = image.height * image.width;
  for (std::int64_t i = 0; i < plane; ++i) {
    for (std::int64_t c = 0; c < image.channels; ++c) {
      target[c * plane + i] = image.pixels[i * image.channels + c];
    }
  }
}

}  // namespace sape2::data
