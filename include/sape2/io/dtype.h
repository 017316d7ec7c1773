#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

namespace sape2::io {

/// The element types of a safetensors file, ordered by alignment as the format's own
/// implementation orders them: a file's tensors are laid out from the last of these to the first.
enum class Dtype {
  boolean,
  u8,
  i8,
  f8_e5m2,
  f8_e4m3,
  i16,
  u16,
  f16,
  bf16,
  i32,
  u32,
  f32,
  f64,
  i64,
  u64,
};

/// Every Dtype, in declared order.
std::span<const Dtype> all_dtypes();

/// The name used in files: "F32", "BF16", "BOOL", …
std::string_view dtype_name(Dtype dtype);

/// Bytes per element.
std::size_t dtype_size(Dtype dtype);

/// The Dtype of a name used in files; nothing for an unknown name.
std::optional<Dtype> dtype_from_name(std::string_view name);

}  // namespace sape2::io
