#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"
#include "sape2/data/image.h"

#include "data/readers/listing.h"
#include "data/readers/readers.h"
#include "data/text.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

namespace sape2::data {
namespace fs = std::filesystem;
namespace {

constexpr std::int64_t kDefaultSide = 32;

struct Entry {
  fs::path path;
  std::int64_t label;
};

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
  std::vector<fs::path> images = image_files(class_folder);
  if (images.empty()) {
    throw Error(
        fmt::format("the class folder {} holds no PNG or JPEG file", in_quotes(class_folder)));
  }
  return images;
}

std::vector<fs::path> part_of_class(const std::vector<fs::path>& images,
                                    const fs::path& class_folder, std::size_t label, Split split,
                                    const LoadOptions& options) {
  const auto count = static_cast<std::int64_t>(images.size());
  if (count < 2) {
    throw Error(fmt::format(
        "the class folder {} holds one image, expected at least 2 to split into train and test",
        in_quotes(class_folder)));
  }
  std::vector<fs::path> part;
  for (const std::int64_t i : drawn_part(count, label, split, options)) {
    part.push_back(images[static_cast<std::size_t>(i)]);
  }
  return part;
}

struct Listing {
  std::vector<std::string> class_names;
  std::vector<Entry> entries;
};

Listing list_images(const fs::path& folder, Split split, const LoadOptions& options) {
  const SplitFolders splits = split_folders(folder);
  const fs::path top = splits.any() ? splits.of(split) : folder;
  const std::vector<fs::path> folders = class_folders(top);
  Listing listing{names_of(folders), {}};
  if (folders.size() < 2) {
    throw Error(fmt::format("{} holds {}, expected at least 2 (one folder of images a class)",
                            in_quotes(top), counted(folders.size(), "class folder")));
  }
  const Split other = split == Split::train ? Split::test : Split::train;
  if (splits.any() && listing.class_names != names_of(class_folders(splits.of(other)))) {
    throw Error(fmt::format("{} and {} do not hold the same class folders", in_quotes(splits.train),
                            in_quotes(splits.test)));
  }
  for (std::size_t label = 0; label < folders.size(); ++label) {
    std::vector<fs::path> images = images_of(folders[label]);
    if (!splits.any()) images = part_of_class(images, folders[label], label, split, options);
    for (fs::path& image : images) {
      listing.entries.push_back({std::move(image), static_cast<std::int64_t>(label)});
    }
  }
  return listing;
}

}  // namespace

Dataset read_folder(const fs::path& folder, Split split, const LoadOptions& options) {
  if (!is_folder(folder)) {
    throw Error(fmt::format("there is no folder {}", in_quotes(folder)));
  }
  check_test_share(options);
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
