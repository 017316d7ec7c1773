#include "sape2/nn/encoding_definition.h"

namespace sape2::nn {

namespace {

std::optional<SilentStart> without_offset_numbers(const EncodingSpec& spec) {
  return SilentStart{spec, {"rx", "ry"}};
}

std::optional<SilentStart> without_offset_vectors(const EncodingSpec& spec) {
  return SilentStart{spec, {"tx", "ty"}};
}

}  // namespace

std::vector<EncodingDefinition> define_rpe() {
  return {{.name = "rpe",
           .summary = "a learnable number per head and offset along each axis, inside √d",
           .silent_start = without_offset_numbers},
          {.name = "rpe-shaw",
           .summary = "q times a learnable vector per offset along each axis, inside √d",
           .silent_start = without_offset_vectors},
          {.name = "rpe-decomposed",
           .summary = "the same outside √d, as in MViTv2 and SAM",
           .silent_start = without_offset_vectors}};
}

}  // namespace sape2::nn
