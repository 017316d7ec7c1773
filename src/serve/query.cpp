#include "serve/query.h"

#include "sape2/base/in_quotes.h"

#include <fmt/format.h>

#include <charconv>
#include <limits>
#include <optional>

namespace sape2::serve {
namespace {

constexpr std::int64_t kLargestSize = 4096;
constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();

// `mean` or nothing, or a number from 1.
std::optional<std::int64_t> chosen(const Query& query, const std::string& name) {
  const std::string* value = value_of(query, name);
  if (value == nullptr || value->empty() || *value == "mean") return std::nullopt;
  return whole_number(name, *value, 1, kMost) - 1;
}

std::string decoded(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned byte = 0;
    const char* digits = text.data() + i + 1;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2) {
      plain.push_back(static_cast<char>(byte));
      i += 2;
    } else {
      plain.push_back(text[i] == '+' ? ' ' : text[i]);
    }
  }
  return plain;
}

}  // namespace

const std::string* value_of(const Query& query, const std::string& name) {
  const auto found = query.find(name);
  return found == query.end() ? nullptr : &found->second;
}

std::string required(const Query& query, const std::string& name) {
  const std::string* value = value_of(query, name);
  if (value == nullptr || value->empty()) throw Error("the request lacks \"" + name + "\"");
  return *value;
}

std::int64_t whole_number(const std::string& name, std::string_view text, std::int64_t least,
                          std::int64_t most) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && value >= least && value <= most) {
    return value;
  }
  throw Error(fmt::format("\"{}\" is {}, expected a whole number from {} to {}", name,
                          in_quotes(text), least, most));
}

explain::Selection selection_of(const Query& query) {
  return {chosen(query, "layer"), chosen(query, "head")};
}

explain::What what_of(const Query& query) {
  const std::string* value = value_of(query, "what");
  return value == nullptr ? explain::What::bias : explain::parse_what(*value);
}

explain::Patch patch_of(const Query& query) {
  return {whole_number("y", required(query, "y"), 0, kMost),
          whole_number("x", required(query, "x"), 0, kMost)};
}

std::int64_t size_of(const Query& query) {
  const std::string* value = value_of(query, "size");
  if (value == nullptr || value->empty()) return 0;
  return whole_number("size", *value, 0, kLargestSize);
}

Query parse_query(std::string_view text) {
  Query query;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('&'), text.size());
    const std::string_view pair = text.substr(0, end);
    const std::size_t equals = std::min(pair.find('='), pair.size());
    query.emplace(decoded(pair.substr(0, equals)),
                  equals < pair.size() ? decoded(pair.substr(equals + 1)) : "");
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return query;
}

}  // namespace sape2::serve
