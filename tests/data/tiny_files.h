#pragma once

#include "data/files.h"
#include "data/readers/readers.h"

#include <filesystem>
#include <string>
#include <vector>

/// Small files in the official layouts.
namespace sape2::data::test {

/// A layout like the official one with few records a file.
CifarLayout tiny_cifar10();
CifarLayout tiny_cifar100();
IdxLayout tiny_idx();

/// Records whose labels go round and whose bytes are a known function of record and place.
Bytes cifar_records(const CifarLayout& layout, std::int64_t records, std::int64_t first);
std::uint8_t cifar_byte(std::int64_t record, std::int64_t place);
void write_cifar(const CifarLayout& layout, const std::filesystem::path& folder);

Bytes idx_bytes(const std::vector<std::uint32_t>& shape, const Bytes& content);
void write_idx(const IdxLayout& layout, const std::filesystem::path& folder);

Bytes gzipped(const Bytes& bytes);

/// A member's header; `type` is '0' for a plain file, '1' and '2' for links.
Bytes tar_header(const std::string& name, std::uint64_t size, char type);

/// A gzipped tar archive; names may have folders.
Bytes tar_gz(const std::vector<std::pair<std::string, Bytes>>& members);

}  // namespace sape2::data::test
