#include "sape2/nn/encoding.h"

namespace sape2::nn {

std::vector<EncodingDefinition> define_none() {
  return {{.name = "none",
           .summary = "no position information",
           .make = [](const EncodingSpec&, const EncodingShape&, ParameterScope&) {
             return std::make_unique<Encoding>();
           }}};
}

}  // namespace sape2::nn
