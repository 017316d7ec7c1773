#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"

#include "data/files.h"
#include "data/readers/readers.h"
#include "data/text.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>

namespace sape2::data {
namespace fs = std::filesystem;
namespace {

constexpr std::uint32_t kUnsignedByte = 0x08;

fs::path gzipped_or_plain(const fs::path& folder, const std::string& name) {
  std::error_code ignored;
  const fs::path gzipped = folder / (name + ".gz");
  return fs::exists(gzipped, ignored) ? gzipped : folder / name;
}

std::uint32_t big_endian(const std::uint8_t* bytes) {
  return std::uint32_t{bytes[0]} << 24 | std::uint32_t{bytes[1]} << 16 |
         std::uint32_t{bytes[2]} << 8 | bytes[3];
}

// The content of an IDX file of bytes that must have exactly this shape.
Bytes read_idx_file(const fs::path& path, const std::vector<std::int64_t>& shape) {
  std::uint64_t content = 1;
  for (const std::int64_t size : shape) content *= static_cast<std::uint64_t>(size);
  const std::size_t header = 4 + 4 * shape.size();
  Bytes bytes = read_maybe_gzip(path, header + content);
  if (bytes.size() < header) {
    throw Error(fmt::format("{} is truncated: it has {}, too few for an IDX header",
                            in_quotes(path), counted(bytes.size(), "byte")));
  }
  const std::uint32_t magic = big_endian(bytes.data());
  const std::uint32_t expected = kUnsignedByte << 8 | static_cast<std::uint32_t>(shape.size());
  if (magic != expected) {
    throw Error(
        fmt::format("{} is no IDX file of bytes with {} axes: it begins with 0x{:08x}, "
                    "expected 0x{:08x}",
                    in_quotes(path), shape.size(), magic, expected));
  }
  std::vector<std::int64_t> found;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    found.push_back(big_endian(bytes.data() + 4 + 4 * axis));
  }
  if (found != shape) {
    throw Error(fmt::format("{} says its size is {}, expected {}", in_quotes(path),
                            fmt::join(found, " × "), fmt::join(shape, " × ")));
  }
  if (bytes.size() != header + content) {
    throw Error(fmt::format("{} is truncated: it holds {} bytes, expected {}", in_quotes(path),
                            grouped(bytes.size()), grouped(header + content)));
  }
  bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(header));
  return bytes;
}

}  // namespace

std::string idx_images_file(Split split) {
  return split == Split::train ? "train-images-idx3-ubyte" : "t10k-images-idx3-ubyte";
}

std::string idx_labels_file(Split split) {
  return split == Split::train ? "train-labels-idx1-ubyte" : "t10k-labels-idx1-ubyte";
}

const IdxLayout& fashion_mnist_layout() {
  static const IdxLayout layout{.name = "fashion-mnist",
                                .train_images = 60'000,
                                .test_images = 10'000,
                                .height = 28,
                                .width = 28,
                                .class_names = {"t-shirt", "trouser", "pullover", "dress", "coat",
                                                "sandal", "shirt", "sneaker", "bag", "ankle boot"},
                                .normalisation = {{0.2860}, {0.3530}}};
  return layout;
}

Dataset read_idx(const IdxLayout& layout, const fs::path& folder, Split split) {
  const std::int64_t count = layout.images(split);
  const fs::path images_path = gzipped_or_plain(folder, idx_images_file(split));
  const fs::path labels_path = gzipped_or_plain(folder, idx_labels_file(split));
  const Bytes images = read_idx_file(images_path, {count, layout.height, layout.width});
  const Bytes labels = read_idx_file(labels_path, {count});

  Dataset dataset{.name = layout.name,
                  .images = at::empty({count, 1, layout.height, layout.width}, at::kByte),
                  .labels = at::empty({count}, at::kLong),
                  .class_names = layout.class_names,
                  .normalisation = layout.normalisation};
  std::memcpy(dataset.images.data_ptr(), images.data(), images.size());
  auto* label = dataset.labels.data_ptr<std::int64_t>();
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] >= dataset.classes()) {
      throw Error(fmt::format("record {} of {} has the label {}, expected 0 … {}", i,
                              in_quotes(labels_path), labels[i], dataset.classes() - 1));
    }
    label[i] = labels[i];
  }
  check_labels(dataset, folder);
  return dataset;
}

}  // namespace sape2::data
