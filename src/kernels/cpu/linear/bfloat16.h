#pragma once

#include "cpu/linear/pass.h"

namespace sape2::kernels {

/// Whether CPUID announces AVX-512 BF16, the system saves its registers, and a product comes out
/// right. The functions below are for such a CPU alone.
bool cpu_multiplies_bfloat16();

void round_rows(std::int64_t rows, std::int64_t width, ConstRows x, Rows16 y);
void linear_bfloat16_rows(const PackedWeights& weights, std::int64_t rows, ConstRows16 x, Rows y,
                          const LinearEpilogue& epilogue);

}  // namespace sape2::kernels
