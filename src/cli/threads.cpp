#include "cli/threads.h"

#include "cli/blas_library.h"

#include <ATen/Parallel.h>

namespace sape2::cli {

void use_threads(int threads) {
  at::set_num_threads(threads);
  set_blas_threads(threads);
}

int threads_in_use() {
  return at::get_num_threads();
}

}  // namespace sape2::cli
