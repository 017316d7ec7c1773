#pragma once

#include "sape2/io/safetensors.h"

#include <filesystem>
#include <span>
#include <string>

/// Checksums of safetensors files, against silent damage (not against forgery). CRC-32C, because
/// the tree has it for TensorBoard's files and it finds every burst of up to 32 bits.

namespace sape2::io {

/// The metadata key that holds the checksum. Other programs pass it over.
inline const std::string kChecksumKey = "sape2_checksum";

/// The checksum of all metadata (but the checksum itself) and of every tensor's name, shape and
/// bytes, in the order of names: "crc32c:" and eight digits.
std::string checksum_of(const Metadata& metadata, std::span<const TensorView> tensors);

/// The checksum of a file as it is now, whatever it says of itself.
std::string content_checksum(const std::filesystem::path& file);

/// Throws FormatError if a file has a checksum that does not fit its content. Files without one,
/// made by others or by older versions, pass.
void verify_checksum(const SafetensorsFile& file);

}  // namespace sape2::io
