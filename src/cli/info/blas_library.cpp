#include "cli/info/blas_library.h"

#include "sape2/base/openblas.h"
#include "sape2/base/settings.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>

#include <cstdlib>

namespace sape2::cli {

BlasLibrary find_blas_library() {
  if (at::hasMKL()) return {.name = at::get_mkl_version(), .threads = at::get_num_threads()};
  const base::LoadedBlas loaded = base::find_loaded_blas();
  BlasLibrary library{
      .name = loaded.version, .path = loaded.path, .core = loaded.core, .threads = loaded.threads};
  library.is_narrow = !base::better_openblas_core(base::read_cpu(), loaded.core).empty();
  if (!library.name.empty()) return library;
  if (library.path.find("atlas") != std::string::npos) {
    library.name = "ATLAS";
  } else if (library.path.find("libblas.so") != std::string::npos) {
    library.name = "reference BLAS";
    library.is_slow = true;
  } else {
    library.name = "unknown";
  }
  return library;
}

std::string with_kernels(const BlasLibrary& blas) {
  return blas.core.empty() ? blas.name : blas.name + ", " + blas.core + " kernels";
}

void warn_of_slow_blas(const Terminal& terminal, const BlasLibrary& blas) {
  if (blas.is_slow) {
    terminal.warning(
        "this is the reference BLAS, many times slower than an optimised one; install "
        "libopenblas0-pthread");
  }
  if (blas.is_narrow) {
    const bool by_variable = std::getenv("OPENBLAS_CORETYPE") != nullptr;
    terminal.warning("OpenBLAS runs its " + blas.core +
                     " kernels, with narrower vectors than this CPU has; " +
                     (by_variable ? "unset OPENBLAS_CORETYPE" : "install a newer OpenBLAS"));
  }
}

}  // namespace sape2::cli
