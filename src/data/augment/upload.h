#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

namespace sape2::data {

/// Host values as a tensor of this shape on a device.
inline at::Tensor upload(const std::vector<std::int64_t>& values, at::IntArrayRef shape,
                         at::Device device) {
  return at::tensor(values, at::kLong).view(shape).to(device);
}

inline at::Tensor upload(const std::vector<float>& values, at::IntArrayRef shape,
                         at::Device device) {
  return at::tensor(values, at::kFloat).view(shape).to(device);
}

/// Takes pixels[b, c, index[b, …]] for each image b and channel c. Pixels: [B, C, P]; index: [B,
/// Q].
inline at::Tensor take_pixels(const at::Tensor& pixels, const at::Tensor& index) {
  return pixels.gather(2, index.unsqueeze(1).expand({-1, pixels.size(1), -1}));
}

/// Boxes of images, one each, end excluded; empty ones cover nothing.
struct Boxes {
  std::vector<std::int64_t> top, left, bottom, right;

  void add(std::int64_t t, std::int64_t l, std::int64_t b, std::int64_t r) {
    top.push_back(t);
    left.push_back(l);
    bottom.push_back(b);
    right.push_back(r);
  }

  /// [B, 1, height, width] bool: true inside.
  at::Tensor mask(std::int64_t height, std::int64_t width, at::Device device) const;
};

}  // namespace sape2::data
