#include "sape2/explain/picture.h"

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <system_error>

namespace sape2::explain {
namespace {

constexpr std::int64_t kLongestRange = 1000;

struct DatasetName {
  std::string dataset;
  data::Split split;
  std::int64_t first, last;
};

std::optional<std::int64_t> number_of(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

// NAME:SPLIT:INDEX or NAME:SPLIT:FIRST-LAST; the name itself may hold colons (folder:PATH).
std::optional<DatasetName> parse_dataset_name(std::string_view text) {
  const std::size_t last_colon = text.rfind(':');
  if (last_colon == std::string_view::npos || last_colon == 0) return std::nullopt;
  const std::size_t split_colon = text.rfind(':', last_colon - 1);
  if (split_colon == std::string_view::npos) return std::nullopt;
  const std::string_view split = text.substr(split_colon + 1, last_colon - split_colon - 1);
  if (split != "train" && split != "test") return std::nullopt;
  const std::string_view range = text.substr(last_colon + 1);
  const std::size_t dash = range.find('-');
  const auto first = number_of(range.substr(0, dash));
  const auto last = dash == std::string_view::npos ? first : number_of(range.substr(dash + 1));
  if (!first || !last || *last < *first || *last - *first >= kLongestRange) {
    throw Error(fmt::format(
        "{} names no image: after {}: an index such as 42, or a range of at most {} such as 0-15, "
        "was expected",
        in_quotes(text), split, kLongestRange));
  }
  return DatasetName{std::string(text.substr(0, split_colon)),
                     split == "train" ? data::Split::train : data::Split::test, *first, *last};
}

}  // namespace

Picture picture_of(const data::Dataset& dataset, std::string_view split, std::int64_t index) {
  if (index < 0 || index >= dataset.size()) {
    throw Error(fmt::format("{} has no {} image {}; the last is {}", dataset.name, split, index,
                            dataset.size() - 1));
  }
  at::Tensor pixels = dataset.images[index];
  if (pixels.size(0) == 1) pixels = pixels.expand({3, -1, -1});
  pixels = pixels.permute({1, 2, 0}).contiguous();
  const auto* bytes = pixels.data_ptr<std::uint8_t>();
  Picture picture{.name = fmt::format("{}:{}:{}", dataset.name, split, index),
                  .image = {.height = dataset.height(),
                            .width = dataset.width(),
                            .channels = 3,
                            .pixels = {bytes, bytes + pixels.numel()}},
                  .label = ""};
  if (dataset.target() == data::Target::labels) {
    const auto label = static_cast<std::size_t>(dataset.labels[index].item<std::int64_t>());
    picture.label = dataset.class_names.at(label);
    return picture;
  }
  const at::Tensor mask = dataset.masks[index].contiguous();
  const auto* classes = mask.data_ptr<std::uint8_t>();
  picture.mask = {dataset.height(), dataset.width(), 1, {classes, classes + mask.numel()}};
  return picture;
}

std::vector<Picture> PictureSource::find(const std::string& name) {
  std::error_code error;
  const auto parsed =
      std::filesystem::exists(name, error) ? std::nullopt : parse_dataset_name(name);
  if (!parsed) return {{.name = name, .image = data::read_image(name), .label = ""}};
  const data::Dataset& dataset = split_of(parsed->dataset, parsed->split);
  std::vector<Picture> pictures;
  for (std::int64_t index = parsed->first; index <= parsed->last; ++index) {
    pictures.push_back(picture_of(dataset, data::to_string(parsed->split), index));
  }
  return pictures;
}

const data::Dataset& PictureSource::split_of(const std::string& dataset, data::Split split) {
  const auto key = std::pair(dataset, split);
  const auto found = splits_.find(key);
  if (found != splits_.end()) return found->second;
  return splits_
      .emplace(key, data::load_dataset(dataset, split, {.root = root_, .target = target_}))
      .first->second;
}

}  // namespace sape2::explain
