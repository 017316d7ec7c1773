#include "sape2/nn/encoding_definition.h"

#include "nn/definitions/named.h"

namespace sape2::nn {

// One line a family: X(rope) stands for define_rope(). The order is that of help.
#define SAPE2_ENCODING_FAMILIES(X) \
  X(none)                          \
  X(ape)                           \
  X(sinusoidal)                    \
  X(rpe)                           \
  X(rope)                          \
  X(cope)                          \
  X(lape)                          \
  X(sape2)

#define SAPE2_DECLARE(family) std::vector<EncodingDefinition> define_##family();
SAPE2_ENCODING_FAMILIES(SAPE2_DECLARE)
#undef SAPE2_DECLARE

const std::vector<EncodingDefinition>& encoding_definitions() {
#define SAPE2_PART(family) define_##family,
  static const auto all = joined<EncodingDefinition>({SAPE2_ENCODING_FAMILIES(SAPE2_PART)});
#undef SAPE2_PART
  return all;
}

const EncodingDefinition& encoding_definition(std::string_view name) {
  return named(encoding_definitions(), name, "encoding");
}

void check_encoding(const EncodingSpec& spec, const EncodingShape& shape) {
  const EncodingDefinition& definition = encoding_definition(spec.name());
  if (definition.check_shape) definition.check_shape(spec, shape);
}

std::optional<SilentStart> silent_start(const EncodingSpec& spec) {
  const EncodingDefinition& definition = encoding_definition(spec.name());
  auto start = definition.silent_start ? definition.silent_start(spec) : std::nullopt;
  if (start && spec.with_ape()) start->zeroed.emplace_back("pos_embed");
  return start;
}

const EncodingOption* EncodingDefinition::find_option(std::string_view option) const {
  return find_named(options, option);
}

}  // namespace sape2::nn
