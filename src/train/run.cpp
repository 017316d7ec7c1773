#include "sape2/train/run.h"

#include "sape2/base/error.h"
#include "sape2/data/random.h"
#include "sape2/io/crc32c.h"
#include "sape2/train/loader_source.h"

#include "train/own_part.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <span>

namespace sape2::train {
namespace fs = std::filesystem;
namespace {

fs::path found_above(const fs::path& path, const fs::path& run) {
  std::error_code error;
  if (path.empty() || path.is_absolute() || fs::exists(path, error)) return path;
  for (fs::path above = fs::absolute(run).lexically_normal(); above.has_relative_path();) {
    above = above.parent_path();
    if (fs::exists(above / path, error)) return above / path;
  }
  return path;
}

}  // namespace

DataConfig absolute_paths(DataConfig config) {
  config.name = data::absolute_name(config.name);
  if (!config.root.empty()) config.root = fs::absolute(config.root).lexically_normal();
  return config;
}

DataConfig data_of_run(DataConfig config, const fs::path& run) {
  if (const auto folder = data::folder_of_name(config.name)) {
    config.name = "folder:" + found_above(*folder, run).native();
  }
  config.root = found_above(config.root, run);
  return config;
}

DataConfig at_size_of(const nn::ModelConfig& model, DataConfig config) {
  const data::DatasetInfo& info = data::dataset_info(config.name);
  const nn::Size2d size = model.vit.image_size;
  const bool any_size = info.height == 0 || info.name == "shapes";
  if (any_size && config.image_size == 0 && size.height == size.width &&
      size.height != info.height) {
    config.image_size = size.height;
  }
  return config;
}

data::Dataset load_split(const DataConfig& config, data::Split split, data::Target target) {
  const int64_t most = split == data::Split::train ? config.train_images : config.test_images;
  data::LoadOptions options;
  options.root = config.root;
  options.image_size = config.image_size;
  options.target = target;
  data::Dataset dataset = data::load_dataset(config.name, split, options);
  if (most > 0 && most < dataset.size()) dataset = selected(dataset, at::arange(most, at::kLong));
  return dataset;
}

RunData load_run_data(const DataConfig& config, data::Target target) {
  if (config.held_out > 0) {
    return hold_out(load_split(config, data::Split::train, target), config.held_out);
  }
  return {load_split(config, data::Split::train, target),
          load_split(config, data::Split::test, target)};
}

RunData hold_out(const data::Dataset& train, int64_t images) {
  if (images < 1 || images >= train.size()) {
    throw Error(fmt::format("cannot hold {} of the {} training images of {} out; some have to stay",
                            images, train.size(), train.name));
  }
  auto order = data::shuffled(train.size(), data::Draws(0, 0, 0, data::Purpose::held_out));
  // In the order of the data set, so that nothing depends on how the draw was made.
  std::sort(order.begin(), order.begin() + images);
  std::sort(order.begin() + images, order.end());
  const at::Tensor index = at::tensor(order, at::kLong);
  const auto part = [&](int64_t begin, int64_t count) {
    return data::selected(train, index.narrow(0, begin, count));
  };
  return {.train = part(images, train.size() - images), .test = part(0, images)};
}

std::string to_json_of_all(const RunConfig& config, const RunData& data) {
  auto json = nlohmann::ordered_json::parse(to_json(config));
  json.erase("device");
  json.erase("threads");
  // The same images may lie elsewhere on another machine.
  json["data"].erase("root");
  if (data::folder_of_name(config.data.name)) json["data"].erase("name");
  const auto digest = [](const data::Dataset& images) {
    const at::Tensor labels = (images.labels.defined() ? images.labels : images.masks).contiguous();
    const at::Tensor some = images.images.slice(0, 0, images.size(), 1 + images.size() / 64);
    const at::Tensor pixels = some.contiguous();
    const auto bytes = [](const at::Tensor& tensor) {
      return std::span(static_cast<const std::byte*>(tensor.data_ptr()), tensor.nbytes());
    };
    return io::crc32c(bytes(pixels), io::crc32c(bytes(labels)));
  };
  json["images"] = {{"training", data.train.size()},
                    {"test", data.test.size()},
                    {"checksum of training images", digest(data.train)},
                    {"checksum of test images", digest(data.test)}};
  return json.dump();
}

void fit_to(nn::ModelConfig& model, const data::Dataset& dataset, const Recipe& recipe) {
  model.vit.classes = dataset.classes();
  model.vit.channels = dataset.channels();
  model.vit.image_size = {dataset.height(), dataset.width()};
  model.class_names = dataset.class_names;
  model.mean = dataset.normalisation.mean;
  model.deviation = dataset.normalisation.deviation;
  fit_to(model, recipe);
}

void fit_to(nn::ModelConfig& model, const Recipe& recipe) {
  model.vit.stochastic_depth = recipe.stochastic_depth;
  model.vit.embedding_dropout = recipe.dropout;
  model.vit.projection_dropout = recipe.dropout;
  model.vit.mlp_dropout = recipe.dropout;
}

RunSummary train_in(RunFolder folder, RunData data, Observer& observer, const StopRequested& stop,
                    dist::Group* group) {
  LoaderSource source(std::move(data.train), folder.config(), own_part(group));
  return Trainer(std::move(folder), source, data.test, observer, group).run(stop);
}

}  // namespace sape2::train
