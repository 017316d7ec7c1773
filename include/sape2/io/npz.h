#pragma once

#include "sape2/io/tensor_file.h"

#include <filesystem>

namespace sape2::io {

/// Writes tensors as NumPy's .npz: an uncompressed ZIP file with one .npy file an array, for
/// `numpy.load`. Like every file of ours it appears under its name only when it is whole. Types
/// that NumPy lacks (bfloat16) are refused.
void write_npz(const std::filesystem::path& path, const NamedTensors& tensors);

}  // namespace sape2::io
