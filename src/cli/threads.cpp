#include "cli/threads.h"

#include "sape2/base/openblas.h"

#include <ATen/Parallel.h>

namespace sape2::cli {

void use_threads(int threads) {
  at::set_num_threads(threads);
  base::set_blas_threads(threads);
}

int threads_in_use() {
  return at::get_num_threads();
}

}  // namespace sape2::cli
