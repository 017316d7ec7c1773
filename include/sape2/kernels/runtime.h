#pragma once

#include <cstdint>
#include <string>
#include <vector>

/// What the CPU kernels run on, and what they use while they run.
namespace sape2::kernels {

/// Names of the instruction sets that were built and that this machine has, best first,
/// e.g. {"AVX3", "AVX2", "SCALAR"}.
std::vector<std::string> simd_targets();

/// Uses this instruction set from now on; an empty name goes back to the best one. For tests and
/// measurements; must not run while a kernel does.
void use_simd_target(const std::string& name);

/// What one thread reaches with this instruction set at most, in 10⁹ float32 operations per second:
/// it multiplies and adds in registers for so long, and the fastest burst counts.
double multiply_add_gflops(double milliseconds);

/// Scratch memory of the kernels, all threads together: now, and the most since the last reset.
struct ScratchUse {
  std::int64_t current_bytes = 0;
  std::int64_t peak_bytes = 0;
};
ScratchUse scratch_use();
void reset_scratch_peak();

}  // namespace sape2::kernels
