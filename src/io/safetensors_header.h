#pragma once

#include "sape2/io/safetensors.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sape2::io {

inline constexpr std::uint64_t kLargestHeader = 100'000'000;
inline constexpr std::size_t kMostDimensions = 64;  // as many as LibTorch can hold
inline constexpr std::string_view kMetadataKey = "__metadata__";

/// One tensor as the header describes it; the offsets count from the end of the header.
struct HeaderEntry {
  std::string name;
  Dtype dtype = Dtype::f32;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

struct Header {
  Metadata metadata;
  std::vector<HeaderEntry> entries;  // in the header's order
};

/// Reads the JSON text of a header. Offsets and shapes are whole numbers of the right form; whether
/// they fit each other and the file is for the caller to check. `source` names the file in errors.
Header parse_header(std::string_view json, std::string_view source);

/// Bytes of a tensor of that shape; Error (beginning with `context`) where 64 bits do not hold it.
std::uint64_t tensor_bytes(const std::vector<std::int64_t>& shape, Dtype dtype,
                           const std::string& context);

/// The order in which tensors are written, and the header for that order with its length in front
/// and its padding.
struct Layout {
  std::string header;
  std::vector<const TensorView*> order;
};
Layout make_layout(std::span<const TensorView> tensors, const Metadata& metadata);

}  // namespace sape2::io
