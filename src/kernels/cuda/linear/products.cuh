#pragma once

#include <cstdint>

/// wgmma for linear layers: 64 rows, 16 steps of the depth, both operands bfloat16 from shared
/// memory in panels of 64 columns swizzled over 128 bytes, either of them turned.
namespace sape2::kernels::cuda::linear {

/// The shared-memory descriptor of an operand in panels, which are TMA boxes with rows of 128
/// bytes. The rows of a turned operand run across the depth; its columns fill several panels,
/// `panel_bytes` apart.
__device__ inline std::uint64_t descriptor(std::uint32_t address, std::uint32_t panel_bytes = 16) {
  return std::uint64_t{1u << 30 | 8 * 128 >> 4} << 32 | (panel_bytes >> 4 << 16 | address >> 4);
}

/// By how much a descriptor grows for the next 16 steps of the depth.
template <bool Turned>
inline constexpr int kNextSixteen = Turned ? 16 * 128 / 16 : 16 * 2 / 16;

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

#define SAPE2_RESULTS_8(i)                                                       \
  "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3]), "+f"(c[i + 1][0]), \
      "+f"(c[i + 1][1]), "+f"(c[i + 1][2]), "+f"(c[i + 1][3])
#define SAPE2_RESULTS_32(i) \
  SAPE2_RESULTS_8(i), SAPE2_RESULTS_8(i + 2), SAPE2_RESULTS_8(i + 4), SAPE2_RESULTS_8(i + 6)
#define SAPE2_NUMBERS_0                                                         \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, " \
  "%17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define SAPE2_NUMBERS_32                                                        \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, " \
  "%47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, " \
  "%62, %63"
#define SAPE2_NUMBERS_64                                                        \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, " \
  "%79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, " \
  "%94, %95"
#define SAPE2_NUMBERS_96                                                           \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, "     \
  "%109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, " \
  "%122, %123, %124, %125, %126, %127"

/// WIDTH results a row; A, B, ADD, TURN_A, TURN_B: the numbers of the other operands.
#define SAPE2_PRODUCT(WIDTH, NUMBERS, A, B, ADD, TURN_A, TURN_B, ...)                          \
  asm volatile("{.reg .pred p; setp.ne.b32 p, " ADD                                            \
               ", 0;\n"                                                                        \
               "wgmma.mma_async.sync.aligned.m64n" WIDTH "k16.f32.bf16.bf16 {" NUMBERS "}, " A \
               ", " B ", p, 1, 1, " TURN_A ", " TURN_B ";}\n"                                  \
               : __VA_ARGS__                                                                   \
               : "l"(a), "l"(b), "r"(add), "n"(static_cast<int>(TurnA)),                       \
                 "n"(static_cast<int>(TurnB)))

template <bool TurnA, bool TurnB>
__device__ void product(float (&c)[8][4], std::uint64_t a, std::uint64_t b, int add) {
  SAPE2_PRODUCT("64", SAPE2_NUMBERS_0, "%32", "%33", "%34", "%35", "%36", SAPE2_RESULTS_32(0));
}
template <bool TurnA, bool TurnB>
__device__ void product(float (&c)[16][4], std::uint64_t a, std::uint64_t b, int add) {
  SAPE2_PRODUCT("128", SAPE2_NUMBERS_0 ", " SAPE2_NUMBERS_32, "%64", "%65", "%66", "%67", "%68",
                SAPE2_RESULTS_32(0), SAPE2_RESULTS_32(8));
}
template <bool TurnA, bool TurnB>
__device__ void product(float (&c)[24][4], std::uint64_t a, std::uint64_t b, int add) {
  SAPE2_PRODUCT("192", SAPE2_NUMBERS_0 ", " SAPE2_NUMBERS_32 ", " SAPE2_NUMBERS_64, "%96", "%97",
                "%98", "%99", "%100", SAPE2_RESULTS_32(0), SAPE2_RESULTS_32(8),
                SAPE2_RESULTS_32(16));
}
template <bool TurnA, bool TurnB>
__device__ void product(float (&c)[32][4], std::uint64_t a, std::uint64_t b, int add) {
  SAPE2_PRODUCT("256",
                SAPE2_NUMBERS_0 ", " SAPE2_NUMBERS_32 ", " SAPE2_NUMBERS_64 ", " SAPE2_NUMBERS_96,
                "%128", "%129", "%130", "%131", "%132", SAPE2_RESULTS_32(0), SAPE2_RESULTS_32(8),
                SAPE2_RESULTS_32(16), SAPE2_RESULTS_32(24));
}

#undef SAPE2_PRODUCT
#undef SAPE2_NUMBERS_0
#undef SAPE2_NUMBERS_32
#undef SAPE2_NUMBERS_64
#undef SAPE2_NUMBERS_96
#undef SAPE2_RESULTS_32
#undef SAPE2_RESULTS_8

/// Starts c = a · b, or with `add` c += a · b, over one chunk of the depth.
template <bool TurnA, bool TurnB, int N8>
__device__ void start_chunk(float (&c)[N8][4], std::uint64_t a, std::uint64_t b, bool add) {
#pragma unroll
  for (int k = 0; k < 4; ++k)
    product<TurnA, TurnB>(c, a + k * kNextSixteen<TurnA>, b + k * kNextSixteen<TurnB>,
                          add || k > 0);
}

#endif

}  // namespace sape2::kernels::cuda::linear
