#pragma once

#include <string>
#include <string_view>

namespace sape2::io {

/// Text from a file or a user, in double quotes, made fit for a one-line message: control bytes
/// escaped, long text cut.
std::string in_quotes(std::string_view text);

}  // namespace sape2::io
