#pragma once

#include "sape2/data/normalisation.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sape2::data {

enum class Split { train, test };

std::string_view to_string(Split split);

/// One split of a data set, in memory as bytes.
struct Dataset {
  std::string name;
  at::Tensor images;  ///< [N, C, H, W] uint8, on the CPU
  at::Tensor labels;  ///< [N] int64, each in 0 … classes-1
  std::vector<std::string> class_names;
  Normalisation normalisation;

  std::int64_t size() const { return images.size(0); }
  std::int64_t channels() const { return images.size(1); }
  std::int64_t height() const { return images.size(2); }
  std::int64_t width() const { return images.size(3); }
  std::int64_t classes() const { return static_cast<std::int64_t>(class_names.size()); }
};

/// Images of each class, in the order of the classes.
std::vector<std::int64_t> images_per_class(const Dataset& dataset);

/// The same data set with every image resized (antialiased) to height × width.
Dataset resized(const Dataset& dataset, std::int64_t height, std::int64_t width);

/// How to read a data set; what does not concern a data set is left unused by it.
struct LoadOptions {
  std::filesystem::path root;   ///< where to look; empty: the places of search_roots()
  std::int64_t image_size = 0;  ///< height and width wanted; 0: the data set's own
  std::uint64_t seed = 0;       ///< of `shapes`, and of the split of a folder without one
  double test_share = 0.2;      ///< share of a folder without a split that is kept for tests
};

/// A data set that can be named on the command line.
struct DatasetInfo {
  std::string name;
  std::string summary;
  std::string origin;  ///< where `sape2 data get` takes it from
  std::int64_t channels, height, width, classes, train_images, test_images;  ///< 0: it depends
};

const std::vector<DatasetInfo>& known_datasets();

/// The data set called `name`; an unknown name is answered with the nearest known one.
const DatasetInfo& dataset_info(const std::string& name);

/// The same data set by a name that holds from every folder: the path of `folder:PATH` is made
/// absolute.
std::string absolute_name(const std::string& name);

/// The path of `folder:PATH`; nothing for other names.
std::optional<std::filesystem::path> folder_of_name(const std::string& name);

/// Reads a split of `cifar10`, `cifar100`, `fashion-mnist`, `shapes` or `folder:PATH`.
Dataset load_dataset(const std::string& name, Split split, const LoadOptions& options = {});

}  // namespace sape2::data
