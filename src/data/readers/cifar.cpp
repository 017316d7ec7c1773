#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"

#include "data/files.h"
#include "data/readers/readers.h"
#include "data/text.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cstring>
#include <sstream>

namespace sape2::data {
namespace fs = std::filesystem;
namespace {

constexpr std::int64_t kSide = 32;
constexpr std::int64_t kImageBytes = 3 * kSide * kSide;

std::vector<std::string> words(const char* text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

// The names file that comes with the data, or the names as published where it is missing.
std::vector<std::string> read_class_names(const CifarLayout& layout, const fs::path& folder) {
  const fs::path path = folder / layout.names_file;
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return layout.class_names;
  const Bytes bytes = read_file(path, 1 << 16);
  std::istringstream stream(std::string(bytes.begin(), bytes.end()));
  std::vector<std::string> names{std::istream_iterator<std::string>(stream), {}};
  if (names.size() != layout.class_names.size()) {
    throw Error(fmt::format("{} names {} classes, expected {}", in_quotes(path), names.size(),
                            layout.class_names.size()));
  }
  check_class_names(names, path);
  return names;
}

Bytes read_records(const fs::path& path, std::int64_t records, std::int64_t record_bytes) {
  const auto expected = static_cast<std::uint64_t>(records * record_bytes);
  std::error_code error;
  const std::uintmax_t size = fs::file_size(path, error);
  if (!error && size != expected) {
    throw Error(fmt::format("{} is {}: it has {} bytes, expected {} ({} of {} bytes)",
                            in_quotes(path), size < expected ? "truncated" : "too large",
                            grouped(size), grouped(expected), counted(records, "record"),
                            grouped(record_bytes)));
  }
  return read_file(path, expected);
}

}  // namespace

const CifarLayout& cifar10_layout() {
  static const CifarLayout layout{
      .name = "cifar10",
      .train_files = words("data_batch_1.bin data_batch_2.bin data_batch_3.bin data_batch_4.bin "
                           "data_batch_5.bin"),
      .test_files = {"test_batch.bin"},
      .records_a_file_train = 10'000,
      .records_a_file_test = 10'000,
      .label_bytes = 1,
      .names_file = "batches.meta.txt",
      .class_names = words("airplane automobile bird cat deer dog frog horse ship truck"),
      .normalisation = {{0.4914, 0.4822, 0.4465}, {0.2470, 0.2435, 0.2616}}};
  return layout;
}

const CifarLayout& cifar100_layout() {
  static const CifarLayout layout{
      .name = "cifar100",
      .train_files = {"train.bin"},
      .test_files = {"test.bin"},
      .records_a_file_train = 50'000,
      .records_a_file_test = 10'000,
      .label_bytes = 2,  // coarse, then fine
      .names_file = "fine_label_names.txt",
      .class_names = words(
          "apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus "
          "butterfly camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach "
          "couch crab crocodile cup dinosaur dolphin elephant flatfish forest fox girl hamster "
          "house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree "
          "motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear "
          "pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon ray road "
          "rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar "
          "sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip "
          "turtle wardrobe whale willow_tree wolf woman worm"),
      .normalisation = {{0.5071, 0.4865, 0.4409}, {0.2673, 0.2564, 0.2762}}};
  return layout;
}

Dataset read_cifar(const CifarLayout& layout, const fs::path& folder, Split split) {
  const auto& files = layout.files(split);
  const std::int64_t records = layout.records_a_file(split);
  const std::int64_t record_bytes = layout.label_bytes + kImageBytes;
  const auto total = static_cast<std::int64_t>(files.size()) * records;

  Dataset dataset{.name = layout.name,
                  .images = at::empty({total, 3, kSide, kSide}, at::kByte),
                  .labels = at::empty({total}, at::kLong),
                  .class_names = read_class_names(layout, folder),
                  .normalisation = layout.normalisation};
  auto* image = dataset.images.data_ptr<std::uint8_t>();
  auto* label = dataset.labels.data_ptr<std::int64_t>();
  for (const std::string& file : files) {
    const Bytes bytes = read_records(folder / file, records, record_bytes);
    for (std::int64_t i = 0; i < records; ++i, image += kImageBytes) {
      const std::uint8_t* record = bytes.data() + i * record_bytes;
      *label = record[layout.label_bytes - 1];
      if (*label >= dataset.classes()) {
        throw Error(fmt::format("record {} of {} has the label {}, expected 0 … {}", i,
                                in_quotes(folder / file), *label, dataset.classes() - 1));
      }
      ++label;
      std::memcpy(image, record + layout.label_bytes, kImageBytes);
    }
  }
  check_labels(dataset, folder);
  return dataset;
}

}  // namespace sape2::data
