#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sape2::io {

/// A shape as messages show it: "[2, 3]".
std::string shape_text(const std::vector<std::int64_t>& shape);

}  // namespace sape2::io
