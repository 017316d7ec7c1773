#pragma once

namespace sape2::cli {

/// Threads for LibTorch and its BLAS.
void use_threads(int threads);
int threads_in_use();

}  // namespace sape2::cli
