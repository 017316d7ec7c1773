// Tiles of AMX by its instructions. Written as assembly: gcc's intrinsics do not tell the compiler
// that memory is read and written, and take the numbers of tiles only as literals.
#include "cpu/linear/amx.h"

#if defined(__x86_64__) && defined(__linux__)

#include "sape2/base/cpu.h"
#include "sape2/base/instruction_trial.h"

#include "cpu/linear/bfloat16.h"
#include "cpu/linear/tiles.h"

#include <algorithm>

namespace sape2::kernels {
namespace {

struct AmxTiles {
  static void configure(const TileConfig& config) {
    __asm__ volatile("ldtilecfg %0" : : "m"(config));
  }
  static void release() { __asm__ volatile("tilerelease"); }

  template <int kTile>
  static void zero() {
    __asm__ volatile("tilezero %%tmm%c0" : : "i"(kTile));
  }
  template <int kTile>
  static void load(const void* memory, std::int64_t stride) {
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2"
                     :
                     : "r"(memory), "r"(stride), "i"(kTile)
                     : "memory");
  }
  template <int kTile>
  static void store(void* memory, std::int64_t stride) {
    __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)"
                     :
                     : "r"(memory), "r"(stride), "i"(kTile)
                     : "memory");
  }
  template <int kSum, int kLeft, int kRight>
  static void multiply() {
    __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0"
                     :
                     : "i"(kSum), "i"(kLeft), "i"(kRight));
  }
};

/// Rows of ones times weights of 1 + 2^-7, onto sums of 3: float32 adds them exactly.
bool multiplies_rightly() {
  TileConfig config;
  std::fill_n(config.row_bytes, 8, std::uint16_t{kTileRowBytes});
  std::fill_n(config.rows, 8, std::uint8_t{kTileRows});
  alignas(64) std::uint16_t left[kTileRows * kTileInputs], right[kTileRows * kTileInputs];
  alignas(64) float sums[kTileRows * kPanel];
  std::ranges::fill(left, std::uint16_t{0x3F80});
  std::ranges::fill(right, std::uint16_t{0x3F81});
  std::ranges::fill(sums, 3.0F);
  AmxTiles::configure(config);
  AmxTiles::load<0>(sums, kTileRowBytes);
  AmxTiles::load<4>(left, kTileRowBytes);
  AmxTiles::load<6>(right, kTileRowBytes);
  AmxTiles::multiply<0, 4, 6>();
  AmxTiles::store<0>(sums, kTileRowBytes);
  AmxTiles::release();
  const float expected = 3.0F + static_cast<float>(kTileInputs) * 1.0078125F;
  return std::ranges::all_of(sums, [&](float sum) { return sum == expected; });
}

}  // namespace

bool cpu_multiplies_tiles() {
  // Rows are rounded by AVX-512 BF16, which every CPU with AMX has.
  static const bool does = base::features_of(base::read_cpu()).amx_bf16 &&
                           cpu_multiplies_bfloat16() && base::request_tiles() &&
                           base::succeeds_here(multiplies_rightly);
  return does;
}

void linear_amx_rows(const PackedWeights& weights, std::int64_t rows, ConstRows16 x, Rows y,
                     const LinearEpilogue& epilogue) {
  AmxTiles tiles;
  linear_tile_rows(tiles, weights, rows, x, y, epilogue);
}

}  // namespace sape2::kernels

#else

namespace sape2::kernels {

bool cpu_multiplies_tiles() {
  return false;
}
void linear_amx_rows(const PackedWeights&, std::int64_t, ConstRows16, Rows, const LinearEpilogue&) {
}

}  // namespace sape2::kernels

#endif
