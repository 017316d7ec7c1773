#pragma once

#include "sape2/nn/encoding.h"

#include <string_view>

namespace sape2::nn {

/// What makes the encodings of one name and registers their parameters. `+ape` is not its concern.
struct EncodingMaker {
  std::string_view name;
  std::unique_ptr<Encoding> (*make)(const EncodingSpec&, const EncodingShape&, ParameterScope&);
};

/// The maker of a defined encoding.
const EncodingMaker& encoding_maker(std::string_view name);

}  // namespace sape2::nn
