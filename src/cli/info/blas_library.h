#pragma once

#include "cli/terminal.h"

#include <string>

namespace sape2::cli {

/// The library behind LibTorch's matrix products, as it is loaded in this process.
struct BlasLibrary {
  std::string name;        ///< "OpenBLAS 0.3.21", "Intel MKL …", "reference BLAS", "unknown"
  std::string path;        ///< the file that provides it; empty where it is part of LibTorch
  std::string core;        ///< the CPU whose kernels OpenBLAS uses, such as "SkylakeX"; else empty
  int threads = 1;         ///< threads that one product may use
  bool is_slow = false;    ///< the unoptimised reference implementation
  bool is_narrow = false;  ///< its kernels use narrower vectors than this CPU has
};

BlasLibrary find_blas_library();

/// "OpenBLAS 0.3.21, SkylakeX kernels"
std::string with_kernels(const BlasLibrary& blas);

/// A BLAS that could be faster slows everything down, and flatters what is compared with it: says
/// so with what to do, or nothing where it is at its best.
void warn_of_slow_blas(const Terminal& terminal, const BlasLibrary& blas);

}  // namespace sape2::cli
