#pragma once

#include "cpu/linear/pass.h"

namespace sape2::kernels {

/// Whether tiles of bfloat16 can be multiplied here: CPUID announces AMX with the palette that the
/// kernel needs, the system saves its registers and grants them to this process, and a product
/// comes out right.
bool cpu_multiplies_tiles();

/// linear_bfloat16_rows() with AMX, where cpu_multiplies_tiles().
void linear_amx_rows(const PackedWeights& weights, std::int64_t rows, ConstRows16 x, Rows y,
                     const LinearEpilogue& epilogue);

}  // namespace sape2::kernels
