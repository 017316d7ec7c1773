#include "sape2/nn/encoding_definition.h"

namespace sape2::nn {

std::vector<EncodingDefinition> define_rpe() {
  return {{.name = "rpe",
           .summary = "a learnable number per head and offset along each axis, inside √d"},
          {.name = "rpe-shaw",
           .summary = "q times a learnable vector per offset along each axis, inside √d"},
          {.name = "rpe-decomposed", .summary = "the same outside √d, as in MViTv2 and SAM"}};
}

}  // namespace sape2::nn
