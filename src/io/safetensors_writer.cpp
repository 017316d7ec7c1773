#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"
#include "sape2/io/atomic_file.h"
#include "sape2/io/safetensors.h"

#include "io/safetensors_header.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstring>
#include <set>

namespace sape2::io {
namespace {

void check_tensor(const TensorView& tensor) {
  const std::string context = "tensor " + in_quotes(tensor.name);
  if (tensor.name == kMetadataKey) {
    throw Error(context + " has the name that safetensors files keep for their metadata");
  }
  if (tensor.shape.size() > kMostDimensions) {
    throw Error(context + " has " + std::to_string(tensor.shape.size()) +
                " dimensions, expected at most " + std::to_string(kMostDimensions));
  }
  for (const std::int64_t size : tensor.shape) {
    if (size < 0) {
      throw Error(context + " has " + std::to_string(size) +
                  " in its shape, expected numbers from 0");
    }
  }
  const std::uint64_t needed = tensor_bytes(tensor.shape, tensor.dtype, context);
  if (tensor.bytes.size() != needed) {
    throw Error(context + " has " + std::to_string(tensor.bytes.size()) + " bytes, expected " +
                std::to_string(needed) + " for its shape and dtype");
  }
}

std::string json_string(std::string_view text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    throw Error(in_quotes(text) + " is not valid UTF-8, as names and metadata have to be");
  }
}

// "key":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}
std::string header_entry(const TensorView& tensor, std::uint64_t begin, std::uint64_t end) {
  const nlohmann::ordered_json description = {
      {"dtype", dtype_name(tensor.dtype)}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
  return json_string(tensor.name) + ":" + description.dump();
}

std::string header_entry(const Metadata& metadata) {
  std::string text = json_string(kMetadataKey) + ":{";
  for (const auto& [key, value] : metadata) {
    if (text.back() != '{') text += ",";
    text += json_string(key) + ":" + json_string(value);
  }
  return text + "}";
}

}  // namespace

Layout make_layout(std::span<const TensorView> tensors, const Metadata& metadata) {
  Layout layout;
  for (const TensorView& tensor : tensors) {
    check_tensor(tensor);
    layout.order.push_back(&tensor);
  }
  std::ranges::sort(layout.order, [](const TensorView* left, const TensorView* right) {
    if (left->dtype != right->dtype) return left->dtype > right->dtype;
    return left->name < right->name;
  });

  std::string text = "{";
  if (!metadata.empty()) text += header_entry(metadata);
  std::uint64_t position = 0;
  std::set<std::string_view> names;
  for (const TensorView* tensor : layout.order) {
    if (!names.insert(tensor->name).second) {
      throw Error("tensor " + in_quotes(tensor->name) + " is given twice");
    }
    const std::uint64_t end = position + tensor->bytes.size();
    if (text.back() != '{') text += ",";
    text += header_entry(*tensor, position, end);
    position = end;
  }
  text += "}";
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > kLargestHeader) {
    throw Error("the header would have " + std::to_string(text.size()) +
                " bytes, more than the format's " + std::to_string(kLargestHeader));
  }
  const std::uint64_t length = text.size();
  layout.header.resize(sizeof length);
  std::memcpy(layout.header.data(), &length, sizeof length);
  layout.header += text;
  return layout;
}

void write_safetensors(const std::filesystem::path& path, std::span<const TensorView> tensors,
                       const Metadata& metadata) {
  const Layout layout = make_layout(tensors, metadata);
  AtomicFile file(path);
  file.write(layout.header);
  for (const TensorView* tensor : layout.order) file.write(tensor->bytes);
  file.commit();
}

}  // namespace sape2::io
