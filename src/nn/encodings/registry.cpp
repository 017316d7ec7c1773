#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"
#include "sape2/base/nearest_name.h"
#include "sape2/nn/encoding_definition.h"

#include <algorithm>

namespace sape2::nn {

// One line an encoding file: X(rope) stands for define_rope(), which src/nn/encodings/rope.cpp
// holds. The order is that of help.
#define SAPE2_ENCODING_FILES(X) \
  X(none)                       \
  X(ape)                        \
  X(sinusoidal)                 \
  X(rpe)                        \
  X(rpe_contextual)             \
  X(rope)                       \
  X(rope2d_mixed)               \
  X(cope)                       \
  X(lape)                       \
  X(sape2)

#define SAPE2_DECLARE(file) std::vector<EncodingDefinition> define_##file();
SAPE2_ENCODING_FILES(SAPE2_DECLARE)
#undef SAPE2_DECLARE

namespace {

std::vector<EncodingDefinition> collect_definitions() {
  std::vector<EncodingDefinition> all;
#define SAPE2_COLLECT(file) std::ranges::move(define_##file(), std::back_inserter(all));
  SAPE2_ENCODING_FILES(SAPE2_COLLECT)
#undef SAPE2_COLLECT
  return all;
}

}  // namespace

const std::vector<EncodingDefinition>& encoding_definitions() {
  static const std::vector<EncodingDefinition> definitions = collect_definitions();
  return definitions;
}

const EncodingDefinition& encoding_definition(std::string_view name) {
  const auto& all = encoding_definitions();
  const auto found = std::ranges::find(all, name, &EncodingDefinition::name);
  if (found != all.end()) return *found;
  std::vector<std::string> names;
  for (const EncodingDefinition& definition : all) names.push_back(definition.name);
  throw Error("encoding " + in_quotes(name) + " is not known; " + name_advice(name, names));
}

void check_encoding(const EncodingSpec& spec, const EncodingShape& shape) {
  const EncodingDefinition& definition = encoding_definition(spec.name());
  if (definition.check_shape) definition.check_shape(spec, shape);
}

const EncodingOption* EncodingDefinition::find_option(std::string_view option) const {
  const auto found = std::ranges::find(options, option, &EncodingOption::name);
  return found == options.end() ? nullptr : &*found;
}

}  // namespace sape2::nn
