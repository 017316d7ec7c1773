#include "sape2/data/dataset.h"

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"
#include "sape2/data/image.h"
#include "sape2/nn/model_config.h"

#include "data/readers/readers.h"
#include "data/text.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <cstring>

namespace sape2::data {

std::string_view to_string(Split split) {
  return split == Split::train ? "train" : "test";
}

std::vector<std::int64_t> images_per_class(const Dataset& dataset) {
  std::vector<std::int64_t> counts(dataset.class_names.size(), 0);
  if (dataset.target() == Target::masks) {
    for (std::size_t i = 0; i < counts.size(); ++i) {
      const at::Tensor shown = dataset.masks.eq(static_cast<std::int64_t>(i)).flatten(1).any(1);
      counts[i] = shown.sum().item<std::int64_t>();
    }
    return counts;
  }
  const at::Tensor labels = dataset.labels.contiguous();
  const auto* label = labels.data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < dataset.size(); ++i) ++counts.at(label[i]);
  return counts;
}

void check_labels(const Dataset& dataset, const std::filesystem::path& where) {
  const std::vector<std::int64_t> counts = images_per_class(dataset);
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) {
      throw Error(fmt::format("{} has no image of the class {} ({})", in_quotes(where), i,
                              in_quotes(dataset.class_names[i])));
    }
  }
}

void check_class_names(const std::vector<std::string>& names, const std::filesystem::path& where) {
  try {
    nn::check_class_names(names);
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", in_quotes(where), error.what()));
  }
}

Dataset selected(const Dataset& dataset, const at::Tensor& indices) {
  Dataset result = dataset;
  for (at::Tensor* tensor : {&result.images, &result.labels, &result.masks}) {
    if (tensor->defined()) *tensor = tensor->index_select(0, indices);
  }
  return result;
}

Dataset resized(const Dataset& dataset, std::int64_t height, std::int64_t width) {
  if (dataset.height() == height && dataset.width() == width) return dataset;
  Dataset result = dataset;
  const std::int64_t planes = dataset.size() * dataset.channels();
  const std::int64_t plane_bytes = dataset.height() * dataset.width();
  const at::Tensor source = dataset.images.contiguous();
  const auto* in = source.data_ptr<std::uint8_t>();
  // The first call checks the size before anything large is allocated.
  resize({1, 1, 1, {0}}, height, width);
  result.images = at::empty({dataset.size(), dataset.channels(), height, width}, at::kByte);
  auto* out = result.images.data_ptr<std::uint8_t>();
  at::parallel_for(0, planes, 64, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::uint8_t* plane = in + i * plane_bytes;
      const Image image{dataset.height(), dataset.width(), 1, {plane, plane + plane_bytes}};
      std::memcpy(out + i * height * width, resize(image, height, width).pixels.data(),
                  static_cast<std::size_t>(height * width));
    }
  });
  if (dataset.masks.defined()) {
    const auto middles = [](std::int64_t from, std::int64_t to) {
      return (at::arange(to, at::kLong) * 2 + 1).mul(from).floor_divide(2 * to);
    };
    result.masks = dataset.masks.index_select(1, middles(dataset.height(), height))
                       .index_select(2, middles(dataset.width(), width));
  }
  return result;
}

}  // namespace sape2::data
