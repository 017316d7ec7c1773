#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"

#include "data/files.h"
#include "data/readers/listing.h"
#include "data/readers/masked_images.h"
#include "data/readers/readers.h"
#include "data/text.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <set>
#include <sstream>

namespace sape2::data {
namespace fs = std::filesystem;
namespace {

constexpr std::int64_t kDefaultMaskedSide = 128;
constexpr const char* kNamesFile = "classes.txt";
constexpr std::size_t kMostMaskClasses = kNotCounted;

std::vector<std::string> mask_class_names(const fs::path& folder) {
  const fs::path path = folder / kNamesFile;
  std::error_code ignored;
  if (!fs::exists(path, ignored)) {
    throw Error(fmt::format(
        "there is no file {}: put the names of the masks' classes into it, one a line, from 0 on",
        in_quotes(path)));
  }
  const Bytes bytes = read_file(path, 1 << 20);
  std::istringstream stream(std::string(bytes.begin(), bytes.end()));
  std::vector<std::string> names;
  for (std::string line; std::getline(stream, line);) {
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty()) names.push_back(line);
  }
  if (names.size() < 2 || names.size() > kMostMaskClasses) {
    throw Error(fmt::format("{} names {}, expected 2 … {}", in_quotes(path),
                            counted(names.size(), "class"), kMostMaskClasses));
  }
  check_class_names(names, path);
  return names;
}

// Images with the masks of the same name; a mask without an image is a mistake as well.
std::vector<MaskedFile> pairs_in(const fs::path& folder) {
  const fs::path images = folder / "images", masks = folder / "masks";
  for (const fs::path& part : {images, masks}) {
    if (!is_folder(part)) {
      throw Error(fmt::format(
          "there is no folder {}: segmentation reads images/ and masks/ of the same names in {}",
          in_quotes(part), in_quotes(folder)));
    }
  }
  std::vector<MaskedFile> pairs;
  std::set<std::string> stems;
  for (const fs::path& image : image_files(images)) {
    if (!stems.insert(image.stem()).second) {
      throw Error(fmt::format("{} has two images called {}, which would share one mask",
                              in_quotes(images), in_quotes(image.stem())));
    }
    pairs.push_back({image, masks / (image.stem().native() + ".png")});
  }
  if (pairs.empty()) {
    throw Error(fmt::format("the folder {} holds no PNG or JPEG file", in_quotes(images)));
  }
  for (const fs::path& mask : image_files(masks)) {
    if (!stems.contains(mask.stem())) {
      throw Error(fmt::format("the mask {} has no image of that name in {}", in_quotes(mask),
                              in_quotes(images)));
    }
  }
  return pairs;
}

std::vector<MaskedFile> pairs_of(const fs::path& folder, Split split, const LoadOptions& options) {
  const SplitFolders splits = split_folders(folder);
  if (splits.any()) return pairs_in(splits.of(split));
  const std::vector<MaskedFile> all = pairs_in(folder);
  if (all.size() < 2) {
    throw Error(fmt::format("{} holds one image, expected at least 2 to split into train and test",
                            in_quotes(folder)));
  }
  std::vector<MaskedFile> part;
  for (const std::int64_t i :
       drawn_part(static_cast<std::int64_t>(all.size()), 0, split, options)) {
    part.push_back(all[static_cast<std::size_t>(i)]);
  }
  return part;
}

}  // namespace

Dataset read_masked_folder(const fs::path& folder, Split split, const LoadOptions& options) {
  if (!is_folder(folder)) throw Error(fmt::format("there is no folder {}", in_quotes(folder)));
  check_test_share(options);
  Dataset dataset{.name = "folder",
                  .images = {},
                  .labels = {},
                  .class_names = mask_class_names(folder),
                  // ImageNet's figures, the habit for photographs.
                  .normalisation = {{0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}}};
  MaskedPixels pixels =
      read_masked(pairs_of(folder, split, options),
                  {.side = options.image_size > 0 ? options.image_size : kDefaultMaskedSide,
                   .meaning = MaskMeaning::plain(dataset.class_names.size())});
  dataset.images = std::move(pixels.images);
  dataset.masks = std::move(pixels.masks);
  const auto shown = images_per_class(dataset);
  const auto classes = std::ranges::count_if(shown, [](auto images) { return images > 0; });
  // Masks of 0 and 255 are common elsewhere: with them, nothing could be learnt here.
  if (split == Split::train && classes < 2) {
    throw Error(
        fmt::format("the training masks in {} show {}, expected at least 2; number the classes 0, "
                    "1, …: 255 is not counted",
                    in_quotes(folder), counted(static_cast<std::uint64_t>(classes), "class")));
  }
  return dataset;
}

}  // namespace sape2::data
