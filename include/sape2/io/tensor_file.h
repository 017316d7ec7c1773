#pragma once

#include "sape2/io/safetensors.h"

#include <filesystem>
#include <map>
#include <string>

namespace at {
class Tensor;
}

/// LibTorch tensors from and to safetensors files. Include <ATen/ATen.h> to use the tensors.

namespace sape2::io {

using NamedTensors = std::map<std::string, at::Tensor>;

/// A tensor of an open file, on the CPU. It shares the file's memory (no copy) and keeps it alive;
/// changing it in place never reaches the file. Elements that are not
/// aligned to their type, and booleans, are copied. Types that LibTorch does not compute with
/// (U16, U32, U64, F8) are refused.
at::Tensor to_tensor(const SafetensorsFile& file, const TensorView& view);

/// One tensor, or all tensors of a file, as to_tensor() gives them. A file of ours that was damaged
/// is refused (see checksum.h).
at::Tensor load_tensor(const std::filesystem::path& path, const std::string& name);
NamedTensors load_tensors(const std::filesystem::path& path);

/// Writes tensors of any device, layout of strides or gradient state as they are now.
/// The metadata gets the file's checksum. See write_safetensors() for the file's layout and what
/// happens on failure.
void save_tensors(const std::filesystem::path& path, const NamedTensors& tensors,
                  const Metadata& metadata = {});

}  // namespace sape2::io
