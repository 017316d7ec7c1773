#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"
#include "sape2/base/nearest_name.h"
#include "sape2/data/dataset.h"
#include "sape2/data/locations.h"
#include "sape2/data/shapes.h"

#include "data/official.h"
#include "data/readers/readers.h"
#include "data/text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace sape2::data {
namespace {

constexpr std::string_view kFolderPrefix = "folder:";
constexpr std::string_view kPets = "oxford-pets", kSpecies = "oxford-pets:species";

std::filesystem::path official_folder(const std::string& name, const LoadOptions& options) {
  const auto folder = find_dataset(name, options.root);
  if (!folder) {
    std::vector<std::string> places;
    for (const auto& root : search_roots(options.root)) places.push_back(in_quotes(root));
    throw Error(fmt::format("{} was not found in {}: run `sape2 data get {}`", name,
                            fmt::join(places, ", "), name));
  }
  return *folder;
}

Dataset load_shapes(Split split, const LoadOptions& options) {
  ShapesOptions shapes{.split = split, .seed = options.seed};
  if (options.image_size > 0) shapes.image_size = options.image_size;
  Shapes made = make_shapes(shapes);
  return options.target == Target::masks ? with_masks(std::move(made)) : std::move(made.dataset);
}

// Which of its classes `oxford-pets` or `oxford-pets:species` asks for.
PetsClasses pets_classes(const std::string& name) {
  return name == kSpecies ? PetsClasses::species : PetsClasses::breeds;
}

}  // namespace

const std::vector<DatasetInfo>& known_datasets() {
  static const std::vector<DatasetInfo> all{
      {"cifar10", "photographs of 10 kinds of things", "cs.toronto.edu, or npm", 3, 32, 32, 10,
       50'000, 10'000},
      {"cifar100", "photographs of 100 kinds of things", "cs.toronto.edu", 3, 32, 32, 100, 50'000,
       10'000},
      {"fashion-mnist", "grey pictures of clothes", "github.com, or Debian", 1, 28, 28, 10, 60'000,
       10'000},
      {"oxford-pets", "photographs of 37 breeds of cats and dogs, with masks", "robots.ox.ac.uk", 3,
       0, 0, 37, 3'680, 3'669},
      {"shapes", "textured shapes on repetitive backgrounds", "generated", 3, 32, 32, 10, 4'000,
       1'000},
      {"folder", "folder:PATH, a folder of PNG or JPEG files for each class, or images and masks",
       "your own", 3, 0, 0, 0, 0, 0}};
  return all;
}

const DatasetInfo& dataset_info(const std::string& name) {
  const std::string plain = name.starts_with(kFolderPrefix) ? "folder"
                            : name == kSpecies              ? std::string(kPets)
                                                            : name;
  std::vector<std::string> names;
  for (const DatasetInfo& info : known_datasets()) {
    if (info.name == plain) return info;
    names.push_back(info.name);
  }
  throw Error(
      fmt::format("there is no data set {}; {}", in_quotes(name), name_advice(name, names)));
}

std::optional<std::filesystem::path> folder_of_name(const std::string& name) {
  if (!name.starts_with(kFolderPrefix)) return std::nullopt;
  return name.substr(kFolderPrefix.size());
}

std::string absolute_name(const std::string& name) {
  const auto folder = folder_of_name(name);
  if (!folder || folder->empty()) return name;
  return std::string(kFolderPrefix) +
         std::filesystem::absolute(*folder).lexically_normal().native();
}

Dataset load_dataset(const std::string& name, Split split, const LoadOptions& options) {
  const DatasetInfo& info = dataset_info(name);
  if (options.image_size < 0 || options.image_size > 4096) {
    throw Error(fmt::format("the image size is {}, expected 1 … 4096", options.image_size));
  }
  if (info.name == "shapes") return load_shapes(split, options);
  if (info.name == "folder") {
    const std::filesystem::path path = folder_of_name(name).value_or(options.root);
    if (path.empty()) throw Error("say which folder: folder:PATH");
    return options.target == Target::masks ? read_masked_folder(path, split, options)
                                           : read_folder(path, split, options);
  }
  if (info.name == kPets) {
    return read_pets(official_folder(info.name, options), split, pets_classes(name), options);
  }
  if (options.target == Target::masks) {
    throw Error(
        fmt::format("{} has no masks; those that have are oxford-pets, shapes and folder:PATH with "
                    "images/ and masks/",
                    info.name));
  }
  Dataset dataset = official_files(info.name).read(official_folder(info.name, options), split);
  return options.image_size > 0 ? resized(dataset, options.image_size, options.image_size)
                                : dataset;
}

}  // namespace sape2::data
