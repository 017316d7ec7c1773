#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"

#include "data/files.h"
#include "data/readers/listing.h"
#include "data/readers/masked_images.h"
#include "data/readers/readers.h"
#include "data/text.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <sstream>

namespace sape2::data {
namespace fs = std::filesystem;
namespace {

constexpr std::int64_t kPetsSide = 128;
constexpr std::int64_t kBreeds = 37;
// ImageNet's figures, the habit for photographs.
const Normalisation kPetsNormalisation{{0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}};
// Published files are taken as they are: one JPEG of them lacks its last bytes, and masks were
// drawn on pixels as they are stored.
constexpr DecodeOptions kAsPublished{.oriented = false, .whole = false};

struct Pet {
  std::string name;
  std::int64_t breed = 0, species = 0;  // from 0
};

fs::path list_file(const fs::path& folder, Split split) {
  const char* name = split == Split::train ? "trainval.txt" : "test.txt";
  std::error_code ignored;
  const fs::path official = folder / "annotations" / name;
  return fs::exists(official, ignored) ? official : folder / name;
}

fs::path trimaps_folder(const fs::path& folder) {
  std::error_code ignored;
  const fs::path official = folder / "annotations" / "trimaps";
  return fs::exists(official, ignored) ? official : folder / "trimaps";
}

// A name that leads out of the folder is none of ours.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name.find_first_of("/\\") == std::string::npos && name[0] != '.';
}

std::vector<Pet> read_list(const fs::path& path) {
  const Bytes bytes = read_file(path, 1 << 24);
  std::istringstream stream(std::string(bytes.begin(), bytes.end()));
  std::vector<Pet> pets;
  std::int64_t number = 0;
  for (std::string line; std::getline(stream, line);) {
    ++number;
    if (line.empty() || line.starts_with('#')) continue;
    std::istringstream words(line);
    Pet pet;
    if (!(words >> pet.name >> pet.breed >> pet.species) || !is_plain_name(pet.name) ||
        pet.breed < 1 || pet.breed > kBreeds || pet.species < 1 || pet.species > 2) {
      throw Error(
          fmt::format("line {} of {} is {}, expected a name, a breed 1 … {} and a species 1 … 2",
                      number, in_quotes(path), in_quotes(line), kBreeds));
    }
    --pet.breed;
    --pet.species;
    pets.push_back(std::move(pet));
  }
  if (pets.empty()) throw Error(fmt::format("{} lists no image", in_quotes(path)));
  return pets;
}

// "Egyptian_Mau_14" is an Egyptian Mau.
std::string breed_name(const Pet& pet) {
  std::string name = pet.name.substr(0, pet.name.rfind('_'));
  std::ranges::replace(name, '_', ' ');
  return name;
}

std::vector<std::string> breed_names(const std::vector<Pet>& pets, const fs::path& list) {
  std::vector<std::string> names(kBreeds);
  for (const Pet& pet : pets) names[static_cast<std::size_t>(pet.breed)] = breed_name(pet);
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i].empty()) {
      throw Error(fmt::format("{} lists no image of breed {}", in_quotes(list), i + 1));
    }
  }
  check_class_names(names, list);
  return names;
}

fs::path image_of(const fs::path& folder, const Pet& pet) {
  return folder / "images" / (pet.name + ".jpg");
}

fs::path mask_of(const fs::path& folder, const Pet& pet) {
  return trimaps_folder(folder) / (pet.name + ".png");
}

MaskMeaning trimap_meaning() {
  MaskMeaning meaning{.classes = {}, .expected = "1 (animal), 2 (background) or 3 (border)"};
  meaning.classes.fill(MaskMeaning::kUnknown);
  meaning.classes[1] = 1;
  meaning.classes[2] = 0;
  meaning.classes[3] = kNotCounted;
  return meaning;
}

at::Tensor read_images(const fs::path& folder, const std::vector<Pet>& pets, std::int64_t side) {
  const auto count = static_cast<std::int64_t>(pets.size());
  at::Tensor images = at::empty({count, 3, side, side}, at::kByte);
  auto* target = images.data_ptr<std::uint8_t>();
  at::parallel_for(0, count, 8, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const Image image =
          read_image(image_of(folder, pets[static_cast<std::size_t>(i)]), kAsPublished);
      copy_as_planes(resize(image, side, side), target + i * 3 * side * side);
    }
  });
  return images;
}

}  // namespace

bool holds_pets(const fs::path& folder) {
  std::error_code ignored;
  return fs::is_directory(folder / "images", ignored) &&
         fs::is_regular_file(list_file(folder, Split::train), ignored) &&
         fs::is_regular_file(list_file(folder, Split::test), ignored);
}

void check_pets(const fs::path& folder, const PetsCounts& expected) {
  for (const Split split : {Split::train, Split::test}) {
    const fs::path list = list_file(folder, split);
    const std::vector<Pet> pets = read_list(list);
    const auto wanted = split == Split::train ? expected.train : expected.test;
    if (static_cast<std::int64_t>(pets.size()) != wanted) {
      throw Error(fmt::format("{} lists {} images, expected {}", in_quotes(list),
                              grouped(pets.size()), grouped(static_cast<std::uint64_t>(wanted))));
    }
    for (const Pet& pet : pets) {
      for (const fs::path& file : {image_of(folder, pet), mask_of(folder, pet)}) {
        std::error_code ignored;
        if (!fs::is_regular_file(file, ignored)) {
          throw Error(fmt::format("{} lists {}, but there is no file {}", in_quotes(list),
                                  in_quotes(pet.name), in_quotes(file)));
        }
      }
    }
  }
}

Dataset read_pets(const fs::path& folder, Split split, PetsClasses classes,
                  const LoadOptions& options) {
  const fs::path list = list_file(folder, split);
  const std::vector<Pet> pets = read_list(list);
  const std::int64_t side = options.image_size > 0 ? options.image_size : kPetsSide;
  Dataset dataset{.name = "oxford-pets",
                  .images = {},
                  .labels = {},
                  .class_names = {},
                  .normalisation = kPetsNormalisation};
  if (options.target == Target::masks) {
    std::vector<MaskedFile> files;
    for (const Pet& pet : pets) files.push_back({image_of(folder, pet), mask_of(folder, pet)});
    MaskedPixels pixels =
        read_masked(files, {.side = side, .meaning = trimap_meaning(), .decode = kAsPublished});
    dataset.images = std::move(pixels.images);
    dataset.masks = std::move(pixels.masks);
    dataset.class_names = {"background", "animal"};
    return dataset;
  }
  const bool species = classes == PetsClasses::species;
  if (species) dataset.name = "oxford-pets:species";
  dataset.class_names = species ? std::vector<std::string>{"cat", "dog"} : breed_names(pets, list);
  std::vector<std::int64_t> labels;
  for (const Pet& pet : pets) labels.push_back(species ? pet.species : pet.breed);
  dataset.labels = at::tensor(labels, at::kLong);
  dataset.images = read_images(folder, pets, side);
  return dataset;
}

}  // namespace sape2::data
