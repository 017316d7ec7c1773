#include "sape2/nn/encoding_spec.h"

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"
#include "sape2/base/nearest_name.h"
#include "sape2/nn/encoding_definition.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace sape2::nn {
namespace {

using Options = std::vector<std::pair<std::string, std::string>>;

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n\v\f";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

// The whole of `text` as a number, or nothing.
template <typename Number>
std::optional<Number> parse_number(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::string shortest(double number) {
  char buffer[32];
  const double positive_zero = number == 0 ? 0 : number;
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, positive_zero);
  return {buffer, end};
}

std::string canonical_value(const EncodingDefinition& definition, const EncodingOption& option,
                            std::string_view value) {
  const std::string what =
      "option " + in_quotes(option.name) + " of encoding " + in_quotes(definition.name);
  switch (option.kind) {
    case OptionKind::choice:
      if (std::ranges::find(option.choices, value) == option.choices.end()) {
        throw Error(what + " cannot be " + in_quotes(value) + "; " +
                    name_advice(value, option.choices));
      }
      return std::string(value);
    case OptionKind::integer: {
      const auto number = parse_number<int64_t>(value);
      if (!number || *number < option.minimum || *number > option.maximum) {
        throw Error(what + " is " + in_quotes(value) + ", expected a whole number from " +
                    std::to_string(option.minimum) + " to " + std::to_string(option.maximum));
      }
      return std::to_string(*number);
    }
    case OptionKind::number: {
      const auto number = parse_number<double>(value);
      if (!number || !std::isfinite(*number)) {
        throw Error(what + " is " + in_quotes(value) +
                    ", expected a finite number such as 0.5 or -1");
      }
      return shortest(*number);
    }
  }
  throw Error(what + " has no kind");
}

std::vector<std::string> option_names(const EncodingDefinition& definition) {
  std::vector<std::string> names;
  for (const EncodingOption& option : definition.options) names.push_back(option.name);
  return names;
}

std::pair<std::string, std::string> parse_option(const EncodingDefinition& definition,
                                                 std::string_view text) {
  const std::string encoding = "encoding " + in_quotes(definition.name);
  if (definition.options.empty()) {
    throw Error(encoding + " has no options, but " + in_quotes(text) + " was given");
  }
  const size_t equals = text.find('=');
  const std::string_view name = trimmed(text.substr(0, equals));
  const EncodingOption* option = definition.find_option(name);
  if (name.empty()) {
    throw Error(encoding + " has an empty option; write NAME=VALUE between its brackets");
  }
  if (!option) {
    throw Error(encoding + " has no option " + in_quotes(name) + "; " +
                name_advice(name, option_names(definition)));
  }
  if (equals == std::string_view::npos) {
    throw Error("option " + in_quotes(name) + " of " + encoding + " has no value; write " +
                option->name + "=VALUE");
  }
  return {option->name, canonical_value(definition, *option, trimmed(text.substr(equals + 1)))};
}

// The options between the brackets, in declared order.
Options parse_options(const EncodingDefinition& definition, std::string_view text) {
  Options written;
  while (true) {
    const size_t comma = text.find(',');
    auto option = parse_option(definition, trimmed(text.substr(0, comma)));
    if (std::ranges::find(written, option.first, &Options::value_type::first) != written.end()) {
      throw Error("option " + in_quotes(option.first) + " of encoding " +
                  in_quotes(definition.name) + " is given twice");
    }
    written.push_back(std::move(option));
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
  }
  Options ordered;
  for (const EncodingOption& option : definition.options) {
    const auto found = std::ranges::find(written, option.name, &Options::value_type::first);
    if (found != written.end()) ordered.push_back(*found);
  }
  return ordered;
}

struct Parts {
  std::string_view name;
  std::optional<std::string_view> options;
  std::string_view rest;
};

Parts split(std::string_view text) {
  const size_t end_of_name = text.find_first_of("[]+");
  Parts parts{trimmed(text.substr(0, end_of_name)), std::nullopt, {}};
  if (end_of_name == std::string_view::npos) return parts;
  if (text[end_of_name] == ']') {
    throw Error("encoding " + in_quotes(text) + " has \"]\" without \"[\" before it");
  }
  if (text[end_of_name] == '+') {
    parts.rest = trimmed(text.substr(end_of_name));
    return parts;
  }
  const size_t close = text.find(']', end_of_name);
  if (close == std::string_view::npos) {
    throw Error("encoding " + in_quotes(text) + " has \"[\" without \"]\" after it");
  }
  parts.options = text.substr(end_of_name + 1, close - end_of_name - 1);
  parts.rest = trimmed(text.substr(close + 1));
  return parts;
}

bool parse_with_ape(std::string_view text, std::string_view rest) {
  if (rest.empty()) return false;
  if (rest.front() != '+' || trimmed(rest.substr(1)) != "ape") {
    throw Error("encoding " + in_quotes(text) + " ends in " + in_quotes(rest) +
                "; only \"+ape\" can follow an encoding");
  }
  return true;
}

}  // namespace

EncodingSpec::EncodingSpec() : name_("none") {}

EncodingSpec EncodingSpec::parse(std::string_view text) {
  text = trimmed(text);
  if (text.empty()) throw Error("an encoding is empty; write a name such as \"sape2-rel-k\"");
  const Parts parts = split(text);
  if (parts.name.empty()) {
    throw Error("encoding " + in_quotes(text) + " has no name; write one such as \"sape2-k+ape\"");
  }
  const EncodingDefinition& definition = encoding_definition(parts.name);
  EncodingSpec spec;
  spec.name_ = definition.name;
  spec.with_ape_ = parse_with_ape(text, parts.rest);
  if (parts.options && !trimmed(*parts.options).empty()) {
    spec.options_ = parse_options(definition, *parts.options);
  }
  if (spec.name_ == "ape" && spec.with_ape_) {
    throw Error("encoding \"ape+ape\" would add the same vectors twice; write \"ape\"");
  }
  if (definition.check_options) definition.check_options(spec);
  std::erase_if(spec.options_, [&](const auto& option) {
    return definition.find_option(option.first)->default_value == option.second;
  });
  if (spec.name_ == "none" && spec.with_ape_) {
    spec.name_ = "ape";
    spec.with_ape_ = false;
  }
  return spec;
}

std::string EncodingSpec::to_string() const {
  std::string options;
  for (const auto& [name, value] : options_) {
    options += (options.empty() ? "" : ",") + name + "=" + value;
  }
  return name_ + (options.empty() ? "" : "[" + options + "]") + (with_ape_ ? "+ape" : "");
}

EncodingSpec EncodingSpec::without_ape() const {
  if (name_ == "ape") return {};
  EncodingSpec spec = *this;
  spec.with_ape_ = false;
  return spec;
}

const std::string* EncodingSpec::value(std::string_view option) const {
  const auto found = std::ranges::find(options_, option, &Options::value_type::first);
  if (found != options_.end()) return &found->second;
  const EncodingOption* declared = encoding_definition(name_).find_option(option);
  if (!declared)
    throw Error("encoding " + in_quotes(name_) + " has no option " + in_quotes(option));
  return declared->default_value ? &*declared->default_value : nullptr;
}

bool EncodingSpec::has(std::string_view option) const {
  return std::ranges::find(options_, option, &Options::value_type::first) != options_.end();
}

const std::string& EncodingSpec::choice(std::string_view option) const {
  return *value(option);
}

std::optional<double> EncodingSpec::number(std::string_view option) const {
  const std::string* text = value(option);
  return text ? parse_number<double>(*text) : std::nullopt;
}

std::optional<int64_t> EncodingSpec::integer(std::string_view option) const {
  const std::string* text = value(option);
  return text ? parse_number<int64_t>(*text) : std::nullopt;
}

std::vector<EncodingSpec> parse_encoding_list(std::string_view text) {
  std::vector<EncodingSpec> specs;
  size_t start = 0;
  bool inside_brackets = false;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && text[i] != ',') {
      if (text[i] == '[') inside_brackets = true;
      if (text[i] == ']') inside_brackets = false;
      continue;
    }
    if (i < text.size() && inside_brackets) continue;
    const std::string_view part = trimmed(text.substr(start, i - start));
    if (part.empty()) {
      throw Error("the list of encodings " + in_quotes(text) + " has an empty entry");
    }
    specs.push_back(EncodingSpec::parse(part));
    start = i + 1;
  }
  return specs;
}

}  // namespace sape2::nn
