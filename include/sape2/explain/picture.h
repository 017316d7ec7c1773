#pragma once

#include "sape2/data/dataset.h"
#include "sape2/explain/input.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sape2::explain {

/// One image of a data set as RGB.
Picture picture_of(const data::Dataset& dataset, std::string_view split, std::int64_t index);

/// Finds images by name: a PNG or JPEG file, or an image of a data set as `cifar10:test:42`; a
/// range of them is `cifar10:test:0-15`. Splits are read once.
class PictureSource {
 public:
  /// `target`: whether images of data sets come with their class or their mask.
  explicit PictureSource(std::filesystem::path root = {},
                         data::Target target = data::Target::labels)
      : root_(std::move(root)), target_(target) {}

  std::vector<Picture> find(const std::string& name);

 private:
  const data::Dataset& split_of(const std::string& dataset, data::Split split);

  std::filesystem::path root_;
  data::Target target_;
  std::map<std::pair<std::string, data::Split>, data::Dataset> splits_;
};

}  // namespace sape2::explain
