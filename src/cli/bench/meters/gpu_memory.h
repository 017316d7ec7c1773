#pragma once

#include <cstdint>

namespace sape2::cli {

/// The most memory LibTorch has held on the current GPU since the last reset; 0 in a build without
/// CUDA.
std::int64_t peak_gpu_memory();
void reset_peak_gpu_memory();

}  // namespace sape2::cli
