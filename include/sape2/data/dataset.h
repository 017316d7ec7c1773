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

/// What a data set says of its images: a class of each image, or one of each pixel.
enum class Target { labels, masks };

/// The value of a mask's pixels that belong to no class: neither losses nor figures count them.
inline constexpr std::uint8_t kNotCounted = 255;

/// One split of a data set, in memory as bytes.
struct Dataset {
  std::string name;
  at::Tensor images;  ///< [N, C, H, W] uint8, on the CPU
  at::Tensor labels;  ///< [N] int64, each in 0 … classes-1; undefined if there are masks
  std::vector<std::string> class_names;
  Normalisation normalisation;
  /// [N, H, W] uint8, each pixel in 0 … classes-1 or kNotCounted; undefined if there are labels.
  at::Tensor masks = {};

  Target target() const { return masks.defined() ? Target::masks : Target::labels; }
  std::int64_t size() const { return images.size(0); }
  std::int64_t channels() const { return images.size(1); }
  std::int64_t height() const { return images.size(2); }
  std::int64_t width() const { return images.size(3); }
  std::int64_t classes() const { return static_cast<std::int64_t>(class_names.size()); }
};

/// Images of each class, in the order of the classes; with masks, those that show the class.
std::vector<std::int64_t> images_per_class(const Dataset& dataset);

/// The images of these indices (`[n]` int64), with what belongs to them.
Dataset selected(const Dataset& dataset, const at::Tensor& indices);

/// The same data set with every image resized (antialiased) to height × width, masks by the nearest
/// pixel.
Dataset resized(const Dataset& dataset, std::int64_t height, std::int64_t width);

/// How to read a data set; what does not concern a data set is left unused by it.
struct LoadOptions {
  std::filesystem::path root;   ///< where to look; empty: the places of search_roots()
  std::int64_t image_size = 0;  ///< height and width wanted; 0: the data set's own
  std::uint64_t seed = 0;       ///< of `shapes`, and of the split of a folder without one
  double test_share = 0.2;      ///< share of a folder without a split that is kept for tests
  Target target = Target::labels;
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

/// Reads a split of `cifar10`, `cifar100`, `fashion-mnist`, `oxford-pets`, `oxford-pets:species`,
/// `shapes` or `folder:PATH`. Masks are those of `oxford-pets`, of `shapes`, and of a folder of
/// images and masks; other data sets have none, which is an Error.
Dataset load_dataset(const std::string& name, Split split, const LoadOptions& options = {});

}  // namespace sape2::data
