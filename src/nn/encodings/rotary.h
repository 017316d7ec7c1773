#pragma once

#include "sape2/base/error.h"
#include "sape2/nn/encoding_definition.h"

#include <string>

namespace sape2::nn {

/// EncodingDefinition::check_shape of the rotary encodings, which turn channels in groups.
template <int64_t group>
void check_head_size_divisible(const EncodingSpec& spec, const EncodingShape& shape) {
  if (shape.head_size() % group == 0) return;
  throw Error("encoding \"" + spec.name() + "\" needs a head size divisible by " +
              std::to_string(group) + ", but width " + std::to_string(shape.width) + " over " +
              std::to_string(shape.heads) + " heads gives " + std::to_string(shape.head_size()));
}

}  // namespace sape2::nn
