#include "sape2/explain/view.h"

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"
#include "sape2/base/nearest_name.h"

#include <fmt/format.h>

#include <array>
#include <charconv>

namespace sape2::explain {
namespace {

constexpr std::array<std::string_view, 6> kNames{"bias",  "bias-x",    "bias-y",
                                                 "gates", "positions", "attention"};

bool read_number(std::string_view text, std::int64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= 0;
}

}  // namespace

std::string_view to_string(What what) {
  return kNames.at(static_cast<std::size_t>(what));
}

const std::vector<std::string>& what_names() {
  static const std::vector<std::string> names(kNames.begin(), kNames.end());
  return names;
}

What parse_what(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<What>(i);
  }
  throw Error("there is no " + in_quotes(name) + " to look at; " + name_advice(name, what_names()));
}

std::string_view to_string(ScaleKind kind) {
  switch (kind) {
    case ScaleKind::distance:
      return "distance";
    case ScaleKind::balanced:
      return "balanced";
    case ScaleKind::share:
      return "share";
    case ScaleKind::gate:
      return "gate";
  }
  return "";
}

std::string to_string(const Selection& selection) {
  if (!selection.layer && !selection.head) return "mean of all layers and heads";
  const std::string layer =
      selection.layer ? fmt::format("layer {}", *selection.layer + 1) : "mean of the layers";
  const std::string head =
      selection.head ? fmt::format("head {}", *selection.head + 1) : "mean of the heads";
  return layer + ", " + head;
}

Patch parse_patch(std::string_view text) {
  const std::size_t comma = text.find(',');
  Patch patch;
  if (comma == std::string_view::npos || !read_number(text.substr(0, comma), patch.y) ||
      !read_number(text.substr(comma + 1), patch.x)) {
    throw Error("the patch " + in_quotes(text) +
                " is not understood; give its row and column from 0, as in 3,5");
  }
  return patch;
}

}  // namespace sape2::explain
