#pragma once

// Builds the portable path, AVX2 and AVX-512 on x86, NEON on Arm. The SSE variants would cost
// compile time and serve hardly any machine; vectors of unknown length (SVE) cannot be held in
// arrays of registers. Must come before any Highway header.
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
