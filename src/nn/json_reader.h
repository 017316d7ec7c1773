#pragma once

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"
#include "sape2/base/nearest_name.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sape2::nn {

using Json = nlohmann::ordered_json;

/// A JSON text; throws Error with a sentence that begins with `where` if it is none. A message
/// shows the value it is about, which recurses; so nesting is bounded here.
inline Json parse_json(std::string_view text, const std::string& where) {
  constexpr int kDeepestNesting = 8;
  const auto bounded = [&](int depth, Json::parse_event_t, Json&) {
    if (depth > kDeepestNesting) throw Error(where + " is nested too deeply");
    return true;
  };
  Json json = Json::parse(text, bounded, /*allow_exceptions=*/false);
  if (json.is_discarded()) throw Error(where + " is not valid JSON");
  return json;
}

/// Reads one JSON object key by key, with a sentence for each thing that is not as it must be.
/// `where` is how the sentence begins: "the model configuration".
class JsonReader {
 public:
  JsonReader(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object_.is_object()) throw Error(where_ + " is not a JSON object");
  }

  const Json& at(const std::string& key) {
    keys_.push_back(key);
    const auto found = object_.find(key);
    if (found == object_.end()) throw Error(where_ + " has no " + in_quotes(key));
    return *found;
  }

  int64_t integer(const std::string& key) {
    const Json& value = at(key);
    if (!value.is_number_integer()) wrong(key, value, "a whole number");
    if (value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX) {
      wrong(key, value, "a smaller number");
    }
    return value.get<int64_t>();
  }

  double number(const std::string& key) {
    const Json& value = at(key);
    if (!value.is_number()) wrong(key, value, "a number");
    return value.get<double>();
  }

  double number_between(const std::string& key, double least, double most, const char* expected) {
    const double value = number(key);
    if (!(value >= least && value <= most)) wrong(key, at(key), expected);
    return value;
  }

  bool flag(const std::string& key) {
    const Json& value = at(key);
    if (!value.is_boolean()) wrong(key, value, "true or false");
    return value.get<bool>();
  }

  std::optional<double> number_or_null(const std::string& key) {
    return at(key).is_null() ? std::nullopt : std::optional(number(key));
  }

  std::string text(const std::string& key) {
    const Json& value = at(key);
    if (!value.is_string()) wrong(key, value, "a string");
    return value.get<std::string>();
  }

  template <typename T>
  std::vector<T> list(const std::string& key, bool (Json::*is)() const noexcept,
                      const char* expected) {
    const Json& value = at(key);
    if (!value.is_array()) wrong(key, value, expected);
    for (const Json& item : value) {
      if (!(item.*is)()) wrong(key, value, expected);
    }
    return value.get<std::vector<T>>();
  }

  std::vector<double> numbers(const std::string& key) {
    return list<double>(key, &Json::is_number, "a list of numbers");
  }

  uint64_t natural(const std::string& key) {
    const Json& value = at(key);
    if (!value.is_number_unsigned()) wrong(key, value, "a whole number from 0");
    return value.get<uint64_t>();
  }

  int64_t count(const std::string& key) {
    const uint64_t value = natural(key);
    if (value > INT32_MAX) wrong(key, at(key), "a smaller number");
    return static_cast<int64_t>(value);
  }

  /// To be called last: every key must have been asked for.
  void refuse_others() const {
    for (const auto& [key, value] : object_.items()) {
      if (std::ranges::find(keys_, key) == keys_.end()) {
        throw Error(where_ + " has an unknown key " + in_quotes(key) + "; " +
                    name_advice(key, keys_));
      }
    }
  }

  [[noreturn]] void wrong(const std::string& key, const Json& value, const char* expected) const {
    const auto shown = value.dump(-1, ' ', false, Json::error_handler_t::replace);
    throw Error(where_ + " has " + in_quotes(key) + " = " + in_quotes(shown) + ", expected " +
                expected);
  }

 private:
  const Json& object_;
  std::string where_;
  std::vector<std::string> keys_;
};

}  // namespace sape2::nn
