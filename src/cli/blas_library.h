#pragma once

#include <string>

namespace sape2::cli {

/// The library behind LibTorch's matrix products, as it is loaded in this process.
struct BlasLibrary {
  std::string name;      ///< "OpenBLAS 0.3.21", "Intel MKL …", "reference BLAS", "unknown"
  std::string path;      ///< the file that provides it; empty where it is part of LibTorch
  int threads = 1;       ///< threads that one product may use
  bool is_slow = false;  ///< the unoptimised reference implementation
};

BlasLibrary find_blas_library();

/// LibTorch's thread count does not reach a BLAS with threads of its own; this does.
void set_blas_threads(int threads);

}  // namespace sape2::cli
