#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"
#include "sape2/data/image.h"
#include "sape2/data/random.h"

#include "data/readers/readers.h"
#include "data/text.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace sape2::data {
namespace fs = std::filesystem;
namespace {

constexpr std::int64_t kDefaultSide = 32;

struct Entry {
  fs::path path;
  std::int64_t label;
};

bool is_hidden(const fs::path& path) {
  return path.filename().native().starts_with('.');
}

std::string lower_extension(const fs::path& path) {
  std::string extension = path.extension();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return extension;
}

// Notes and the like may lie beside the images, but an image in a format we cannot read is not
// passed over in silence.
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

// What a folder holds, in the order of names, so that every machine sees the same order.
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

// What a path leads to; a loop of symbolic links or a lack of permission is an Error.
fs::file_status status_of(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::none || status.type() == fs::file_type::unknown) {
    throw Error(fmt::format("cannot read {}: {}", in_quotes(path), error.message()));
  }
  return status;
}

bool is_folder(const fs::path& path) {
  return fs::is_directory(status_of(path));
}

std::vector<fs::path> class_folders(const fs::path& folder) {
  std::vector<fs::path> result;
  for (const fs::path& child : children(folder)) {
    if (is_folder(child)) result.push_back(child);
  }
  return result;
}

std::vector<std::string> names_of(const std::vector<fs::path>& folders) {
  std::vector<std::string> names;
  for (const fs::path& folder : folders) names.push_back(folder.filename());
  if (!folders.empty()) check_class_names(names, folders.front().parent_path());
  return names;
}

std::vector<fs::path> images_of(const fs::path& class_folder) {
  std::vector<fs::path> images;
  for (const fs::path& child : children(class_folder)) {
    if (fs::is_regular_file(status_of(child)) && is_image(child)) images.push_back(child);
  }
  if (images.empty()) {
    throw Error(
        fmt::format("the class folder {} holds no PNG or JPEG file", in_quotes(class_folder)));
  }
  return images;
}

// The part of one class that belongs to a split where the folder itself has none: at least one
// image each, drawn by the seed and the class.
std::vector<fs::path> drawn_part(std::vector<fs::path> images, const fs::path& class_folder,
                                 std::size_t label, Split split, const LoadOptions& options) {
  const auto count = static_cast<std::int64_t>(images.size());
  if (count < 2) {
    throw Error(fmt::format(
        "the class folder {} holds one image, expected at least 2 to split into train and test",
        in_quotes(class_folder)));
  }
  const auto wanted = std::llround(static_cast<double>(count) * options.test_share);
  const std::int64_t tests = std::clamp<std::int64_t>(wanted, 1, count - 1);
  const std::vector<std::int64_t> order =
      shuffled(count, Draws(options.seed, 0, label, Purpose::split));
  std::vector<std::int64_t> chosen(split == Split::test ? order.begin() : order.begin() + tests,
                                   split == Split::test ? order.begin() + tests : order.end());
  std::sort(chosen.begin(), chosen.end());
  std::vector<fs::path> part;
  for (const std::int64_t i : chosen) part.push_back(std::move(images[i]));
  return part;
}

struct Listing {
  std::vector<std::string> class_names;
  std::vector<Entry> entries;
};

Listing list_images(const fs::path& folder, Split split, const LoadOptions& options) {
  const fs::path train = folder / "train";
  const bool has_split = is_folder(train);
  fs::path test = folder / "test";
  if (!is_folder(test)) test = folder / "val";
  if (has_split && !is_folder(test)) {
    throw Error(fmt::format("{} has a folder \"train\" but neither \"test\" nor \"val\" beside it",
                            in_quotes(folder)));
  }
  const fs::path top = !has_split ? folder : split == Split::train ? train : test;
  const std::vector<fs::path> folders = class_folders(top);
  Listing listing{names_of(folders), {}};
  if (folders.size() < 2) {
    throw Error(fmt::format("{} holds {}, expected at least 2 (one folder of images a class)",
                            in_quotes(top), counted(folders.size(), "class folder")));
  }
  if (has_split &&
      listing.class_names != names_of(class_folders(split == Split::train ? test : train))) {
    throw Error(fmt::format("{} and {} do not hold the same class folders", in_quotes(train),
                            in_quotes(test)));
  }
  for (std::size_t label = 0; label < folders.size(); ++label) {
    std::vector<fs::path> images = images_of(folders[label]);
    if (!has_split) {
      images = drawn_part(std::move(images), folders[label], label, split, options);
    }
    for (fs::path& image : images) {
      listing.entries.push_back({std::move(image), static_cast<std::int64_t>(label)});
    }
  }
  return listing;
}

void copy_as_planes(const Image& image, std::uint8_t* target) {
  const std::int64_t plane = image.height * image.width;
  for (std::int64_t i = 0; i < plane; ++i) {
    for (std::int64_t c = 0; c < image.channels; ++c) {
      target[c * plane + i] = image.pixels[i * image.channels + c];
    }
  }
}

}  // namespace

Dataset read_folder(const fs::path& folder, Split split, const LoadOptions& options) {
  if (!is_folder(folder)) {
    throw Error(fmt::format("there is no folder {}", in_quotes(folder)));
  }
  if (!(options.test_share > 0 && options.test_share < 1)) {
    throw Error(
        fmt::format("the test share is {}, expected a number between 0 and 1", options.test_share));
  }
  Listing listing = list_images(folder, split, options);
  const std::int64_t side = options.image_size > 0 ? options.image_size : kDefaultSide;
  const auto count = static_cast<std::int64_t>(listing.entries.size());

  Dataset dataset{.name = "folder",
                  .images = at::empty({count, 3, side, side}, at::kByte),
                  .labels = at::empty({count}, at::kLong),
                  .class_names = std::move(listing.class_names),
                  // ImageNet's figures, the habit for photographs.
                  .normalisation = {{0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}}};
  auto* images = dataset.images.data_ptr<std::uint8_t>();
  auto* labels = dataset.labels.data_ptr<std::int64_t>();
  at::parallel_for(0, count, 8, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const Entry& entry = listing.entries[i];
      copy_as_planes(resize_to_cover(read_image(entry.path), side, side),
                     images + i * 3 * side * side);
      labels[i] = entry.label;
    }
  });
  return dataset;
}

}  // namespace sape2::data
