#pragma once

#include <string>

namespace sape2::cli {

/// `1 h 05 min`, `3 min 20 s`, `4.2 s`.
std::string duration_text(double seconds);

}  // namespace sape2::cli
