#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace sape2::io {

/// A regular file as text. Throws Error with one sentence if it cannot be read, is no regular file
/// (a pipe would be waited for without end) or has more than `most` bytes.
std::string read_text_file(const std::filesystem::path& path, std::uint64_t most);

}  // namespace sape2::io
