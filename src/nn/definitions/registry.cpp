#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"
#include "sape2/base/nearest_name.h"
#include "sape2/nn/encoding_definition.h"

#include <algorithm>

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

namespace {

std::vector<EncodingDefinition> collect_definitions() {
  std::vector<EncodingDefinition> all;
#define SAPE2_COLLECT(family) std::ranges::move(define_##family(), std::back_inserter(all));
  SAPE2_ENCODING_FAMILIES(SAPE2_COLLECT)
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

std::optional<SilentStart> silent_start(const EncodingSpec& spec) {
  const EncodingDefinition& definition = encoding_definition(spec.name());
  auto start = definition.silent_start ? definition.silent_start(spec) : std::nullopt;
  if (start && spec.with_ape()) start->zeroed.emplace_back("pos_embed");
  return start;
}

const EncodingOption* EncodingDefinition::find_option(std::string_view option) const {
  const auto found = std::ranges::find(options, option, &EncodingOption::name);
  return found == options.end() ? nullptr : &*found;
}

}  // namespace sape2::nn
