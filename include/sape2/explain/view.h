#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// What one looks at in a model, and through which layers and heads.
namespace sape2::explain {

/// The quantities that can be looked at, each from one patch to all others.
enum class What {
  bias,       ///< what the encoding adds to the attention, before its gain
  bias_x,     ///< the part of it that comes from the rows
  bias_y,     ///< … from the columns
  gates,      ///< how far each patch of the own row and column is let through, 0 … 1
  positions,  ///< how far apart the soft positions are that the gates add up to
  attention,  ///< the weights of the attention itself
};

/// `bias`, `bias-x`, `bias-y`, `gates`, `positions`, `attention`.
std::string_view to_string(What what);
const std::vector<std::string>& what_names();
/// Throws Error with the nearest valid name.
What parse_what(std::string_view name);

/// How values become colours.
enum class ScaleKind {
  distance,  ///< 0 (near, white) to the largest (far, green)
  balanced,  ///< signed, 0 in the middle
  share,     ///< weights, from 0
  gate,      ///< 0 (closed) to 1 (open)
};
std::string_view to_string(ScaleKind kind);

/// One layer and one head, counted from 0; nothing: the mean of all.
struct Selection {
  std::optional<std::int64_t> layer = std::nullopt;
  std::optional<std::int64_t> head = std::nullopt;
};
/// "layer 2, mean of the heads"
std::string to_string(const Selection& selection);

struct Patch {
  std::int64_t y = 0;
  std::int64_t x = 0;
  bool operator==(const Patch&) const = default;
};
/// Reads "y,x"; throws Error for anything else.
Patch parse_patch(std::string_view text);

}  // namespace sape2::explain
