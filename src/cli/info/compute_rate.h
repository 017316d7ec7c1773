#pragma once

namespace sape2::cli {

/// The rate of a float32 matrix product of `side` × `side` with the threads in use, in 10⁹
/// operations per second: the best of what fits into this time.
double matrix_product_gflops(int side, double milliseconds);

/// What one thread reaches in matrix products: short ones, so that the figure holds on a busy
/// machine too.
double thread_gflops();

/// What one core could give at most: it multiplies and adds in registers.
double core_gflops();

}  // namespace sape2::cli
