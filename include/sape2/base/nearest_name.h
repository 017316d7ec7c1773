#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sape2 {

/// The valid name that `written` was most likely meant to be, or "" when none is near.
/// Near is a few typing mistakes (insert, delete, replace, swap of neighbours), case not counted.
std::string nearest_name(std::string_view written, const std::vector<std::string>& valid);

/// The second half of a sentence about a wrong name: `the nearest is "rope"`, or, when nothing is
/// near, `valid are none, ape, …`.
std::string name_advice(std::string_view written, const std::vector<std::string>& valid);

}  // namespace sape2
