

#include "nn/encodings/makers.h"

namespace sape2::nn {

std::vector<EncodingMaker> makers_of_none() {
  return {{"none", [](const EncodingSpec&, const EncodingShape&, ParameterScope&) {
             return std::make_unique<Encoding>();
           }}};
}

}  // namespace sape2::nn
