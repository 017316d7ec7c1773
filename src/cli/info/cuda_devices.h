#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace sape2::cli {

struct CudaDevice {
  std::string name;
  int capability_major = 0;
  int capability_minor = 0;
  std::size_t memory_bytes = 0;
};

/// What the driver of this machine offers, whether or not LibTorch can use it.
std::vector<CudaDevice> find_cuda_devices();

/// Whether this LibTorch was built with CUDA.
bool libtorch_has_cuda();

}  // namespace sape2::cli
