#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace sape2::io {

/// CRC-32C (Castagnoli). `before` is the value of what came before, so that parts can be chained.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before = 0);

/// The same without the CPU's own instruction for it: what crc32c() does where there is none.
std::uint32_t crc32c_portable(std::span<const std::byte> bytes, std::uint32_t before = 0);

}  // namespace sape2::io
