#include "kernels/cuda/host/call.h"
#include "kernels/cuda/host/device.h"
#include "kernels/cuda/host/geometry.h"

namespace sape2::kernels::cuda {

std::string refusal(const Call& call) {
  return refusal(call, current_device());
}

namespace {

void refuse(const std::string& sentence) {
  if (!sentence.empty()) throw Error(sentence);
}

}  // namespace

void check_shape(const Shape& shape) {
  for (const std::int64_t size : {shape.rows, shape.cols, shape.prefix})
    if (size > kMostTokens)
      refuse("the grid of " + std::to_string(shape.rows) + " × " + std::to_string(shape.cols) +
             " patches behind " + std::to_string(shape.prefix) +
             " prefix tokens is too large; up to " + std::to_string(kMostTokens) +
             " tokens were expected");
  if (shape.images < 0 || shape.heads < 1 || shape.rows < 1 || shape.cols < 1 || shape.prefix < 0 ||
      shape.head_size < 1)
    refuse("the shape has images " + std::to_string(shape.images) + ", heads " +
           std::to_string(shape.heads) + ", rows " + std::to_string(shape.rows) + ", cols " +
           std::to_string(shape.cols) + ", prefix " + std::to_string(shape.prefix) +
           ", head_size " + std::to_string(shape.head_size) +
           "; only images and prefix may be 0, and none negative");
}

void check_call(const Call& call) {
  check_shape(call.shape);
  refuse(refusal(call));
}

void check_sets(std::int64_t sets) {
  if (sets != 1 && sets != 2)
    refuse("there are " + std::to_string(sets) + " sets of axis vectors; 1 or 2 were expected");
}

void check_encoding(const Encoding& encoding) {
  const bool suffix = encoding.span == Span::suffix;
  if (suffix ? encoding.positions < 2 : encoding.positions < 1 || encoding.positions % 2 == 0)
    refuse("the tables have " + std::to_string(encoding.positions) + " positions; " +
           (suffix ? "Span::suffix needs at least 2" : "Span::between needs an odd number"));
}

}  // namespace sape2::kernels::cuda
