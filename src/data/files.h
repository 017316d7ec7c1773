#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace sape2::data {

using Bytes = std::vector<std::uint8_t>;

/// A whole file of at most `limit` bytes; larger ones are refused before they are read.
Bytes read_file(const std::filesystem::path& path, std::uint64_t limit);

/// A whole file, unpacked if it is compressed with gzip, of at most `limit` unpacked bytes.
Bytes read_maybe_gzip(const std::filesystem::path& path, std::uint64_t limit);

/// Appears under its name only when it is whole (io::AtomicFile).
void write_file(const std::filesystem::path& path, std::span<const std::uint8_t> bytes);

void create_folder(const std::filesystem::path& path);

}  // namespace sape2::data
