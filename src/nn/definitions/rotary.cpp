#include "sape2/base/error.h"
#include "sape2/nn/encoding_definition.h"

#include <string>

namespace sape2::nn {
namespace {

// Rotary encodings turn channels in groups.
template <int64_t group>
void check_head_size_divisible(const EncodingSpec& spec, const EncodingShape& shape) {
  if (shape.head_size() % group == 0) return;
  throw Error("encoding \"" + spec.name() + "\" needs a head size divisible by " +
              std::to_string(group) + ", but width " + std::to_string(shape.width) + " over " +
              std::to_string(shape.heads) + " heads gives " + std::to_string(shape.head_size()));
}

}  // namespace

std::vector<EncodingDefinition> define_rope() {
  return {{.name = "rope",
           .summary = "q and k turned by angles of the raster index",
           .check_shape = check_head_size_divisible<2>},
          {.name = "rope2d",
           .summary = "q and k turned, half of the channels by x, half by y (axial)",
           .check_shape = check_head_size_divisible<4>},
          {.name = "rope2d-mixed",
           .summary = "q and k turned by learnable mixtures of x and y, per layer and head",
           .check_shape = check_head_size_divisible<4>,
           .silent_start = [](const EncodingSpec& spec) {
             return std::optional(SilentStart{spec, {"fx", "fy"}});
           }}};
}

}  // namespace sape2::nn
