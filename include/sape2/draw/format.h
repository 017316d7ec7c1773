#pragma once

namespace sape2::draw {

/// The kinds of files that pictures can be drawn into.
enum class Format { png, svg, pdf };

}  // namespace sape2::draw
