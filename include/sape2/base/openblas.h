#pragma once

#include <string>

namespace sape2::base {

/// The library that provides this process with `sgemm_`, the matrix product of every BLAS.
struct LoadedBlas {
  std::string path;     ///< the real file, behind links; empty if there is none
  std::string version;  ///< "OpenBLAS 0.3.21", "BLIS 0.9.0"; empty if it is another or does not say
  std::string core;     ///< the core type whose kernels OpenBLAS uses; empty with another BLAS
  int threads = 1;      ///< threads that one product may use
};

LoadedBlas find_loaded_blas();

/// LibTorch's thread count does not reach a BLAS with threads of its own; this does.
void set_blas_threads(int threads);

/// Makes a loaded OpenBLAS choose its kernels anew, by the environment as it is now. False if it
/// cannot be made to. No matrix product may run meanwhile.
bool choose_openblas_kernels_again();

}  // namespace sape2::base
