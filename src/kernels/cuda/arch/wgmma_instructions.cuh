#pragma once

#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/common/element.cuh"

/// The warpgroup's product instructions that arch/wgmma.cuh builds on, one function each.
namespace sape2::kernels::cuda {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

#define SAPE2_SHARED_PRODUCT_64(TYPE, TURN)                                                       \
  asm volatile(                                                                                   \
      "{.reg .pred p; setp.ne.b32 p, %34, 0;\n"                                                   \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPE "." TYPE                                 \
      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, "   \
      "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, p, 1, 1, "     \
      "0, " TURN ";}\n"                                                                           \
      : "+f"(c[0][0]), "+f"(c[0][1]), "+f"(c[0][2]), "+f"(c[0][3]), "+f"(c[1][0]), "+f"(c[1][1]), \
        "+f"(c[1][2]), "+f"(c[1][3]), "+f"(c[2][0]), "+f"(c[2][1]), "+f"(c[2][2]), "+f"(c[2][3]), \
        "+f"(c[3][0]), "+f"(c[3][1]), "+f"(c[3][2]), "+f"(c[3][3]), "+f"(c[4][0]), "+f"(c[4][1]), \
        "+f"(c[4][2]), "+f"(c[4][3]), "+f"(c[5][0]), "+f"(c[5][1]), "+f"(c[5][2]), "+f"(c[5][3]), \
        "+f"(c[6][0]), "+f"(c[6][1]), "+f"(c[6][2]), "+f"(c[6][3]), "+f"(c[7][0]), "+f"(c[7][1]), \
        "+f"(c[7][2]), "+f"(c[7][3])                                                              \
      : "l"(a), "l"(b), "r"(add))
/// c = (or +=) a · bᵀ, sixteen of k, 64 columns, both from shared memory.
template <class T>
__device__ void wgmma_ss(float (&c)[8][4], std::uint64_t a, std::uint64_t b, int add) {
  if constexpr (std::is_same_v<T, Bf16>) {
    SAPE2_SHARED_PRODUCT_64("bf16", "0");
  } else {
    SAPE2_SHARED_PRODUCT_64("f16", "0");
  }
}
/// c = (or +=) a · b, sixteen of k along the rows of b.
template <class T>
__device__ void wgmma_ss_mn_major(float (&c)[8][4], std::uint64_t a, std::uint64_t b, int add = 1) {
  if constexpr (std::is_same_v<T, Bf16>) {
    SAPE2_SHARED_PRODUCT_64("bf16", "1");
  } else {
    SAPE2_SHARED_PRODUCT_64("f16", "1");
  }
}
#undef SAPE2_SHARED_PRODUCT_64

#define SAPE2_SHARED_PRODUCT_48(TYPE)                                                             \
  asm volatile(                                                                                   \
      "{.reg .pred p; setp.ne.b32 p, %26, 0;\n"                                                   \
      "wgmma.mma_async.sync.aligned.m64n48k16.f32." TYPE "." TYPE                                 \
      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, "   \
      "%19, %20, %21, %22, %23}, %24, %25, p, 1, 1, 0, 0;}\n"                                     \
      : "+f"(c[0][0]), "+f"(c[0][1]), "+f"(c[0][2]), "+f"(c[0][3]), "+f"(c[1][0]), "+f"(c[1][1]), \
        "+f"(c[1][2]), "+f"(c[1][3]), "+f"(c[2][0]), "+f"(c[2][1]), "+f"(c[2][2]), "+f"(c[2][3]), \
        "+f"(c[3][0]), "+f"(c[3][1]), "+f"(c[3][2]), "+f"(c[3][3]), "+f"(c[4][0]), "+f"(c[4][1]), \
        "+f"(c[4][2]), "+f"(c[4][3]), "+f"(c[5][0]), "+f"(c[5][1]), "+f"(c[5][2]), "+f"(c[5][3])  \
      : "l"(a), "l"(b), "r"(add))
/// c = (or +=) a · bᵀ, sixteen of k, 48 columns, both from shared memory.
template <class T>
__device__ void wgmma_ss(float (&c)[6][4], std::uint64_t a, std::uint64_t b, int add) {
  if constexpr (std::is_same_v<T, Bf16>) {
    SAPE2_SHARED_PRODUCT_48("bf16");
  } else {
    SAPE2_SHARED_PRODUCT_48("f16");
  }
}
#undef SAPE2_SHARED_PRODUCT_48

#define SAPE2_SHARED_PRODUCT_32(TYPE, TURN)                                                       \
  asm volatile(                                                                                   \
      "{.reg .pred p; setp.ne.b32 p, %18, 0;\n"                                                   \
      "wgmma.mma_async.sync.aligned.m64n32k16.f32." TYPE "." TYPE                                 \
      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, %16, %17, p, 1, " \
      "1, 0, " TURN ";}\n"                                                                        \
      : "+f"(c[0][0]), "+f"(c[0][1]), "+f"(c[0][2]), "+f"(c[0][3]), "+f"(c[1][0]), "+f"(c[1][1]), \
        "+f"(c[1][2]), "+f"(c[1][3]), "+f"(c[2][0]), "+f"(c[2][1]), "+f"(c[2][2]), "+f"(c[2][3]), \
        "+f"(c[3][0]), "+f"(c[3][1]), "+f"(c[3][2]), "+f"(c[3][3])                                \
      : "l"(a), "l"(b), "r"(add))
/// c = (or +=) a · bᵀ, sixteen of k, 32 columns, both from shared memory.
template <class T>
__device__ void wgmma_ss(float (&c)[4][4], std::uint64_t a, std::uint64_t b, int add) {
  if constexpr (std::is_same_v<T, Bf16>) {
    SAPE2_SHARED_PRODUCT_32("bf16", "0");
  } else {
    SAPE2_SHARED_PRODUCT_32("f16", "0");
  }
}
/// c += a · b, sixteen of k along the rows of b.
template <class T>
__device__ void wgmma_ss_mn_major(float (&c)[4][4], std::uint64_t a, std::uint64_t b) {
  constexpr int add = 1;
  if constexpr (std::is_same_v<T, Bf16>) {
    SAPE2_SHARED_PRODUCT_32("bf16", "1");
  } else {
    SAPE2_SHARED_PRODUCT_32("f16", "1");
  }
}
#undef SAPE2_SHARED_PRODUCT_32

#define SAPE2_TURNED_PRODUCT_40(TYPE)                                                          \
  asm volatile("wgmma.mma_async.sync.aligned.m64n40k16.f32." TYPE "." TYPE                     \
               " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, " \
               "%17, %18, %19}, %20, %21, 1, 1, 1, 0, 1;\n"                                    \
               : "+f"(c[0][0]), "+f"(c[0][1]), "+f"(c[0][2]), "+f"(c[0][3]), "+f"(c[1][0]),    \
                 "+f"(c[1][1]), "+f"(c[1][2]), "+f"(c[1][3]), "+f"(c[2][0]), "+f"(c[2][1]),    \
                 "+f"(c[2][2]), "+f"(c[2][3]), "+f"(c[3][0]), "+f"(c[3][1]), "+f"(c[3][2]),    \
                 "+f"(c[3][3]), "+f"(c[4][0]), "+f"(c[4][1]), "+f"(c[4][2]), "+f"(c[4][3])     \
               : "l"(a), "l"(b))
/// c += a · b, sixteen of k along the rows of b, 40 columns.
template <class T>
__device__ void wgmma_ss_mn_major(float (&c)[5][4], std::uint64_t a, std::uint64_t b) {
  if constexpr (std::is_same_v<T, Bf16>) {
    SAPE2_TURNED_PRODUCT_40("bf16");
  } else {
    SAPE2_TURNED_PRODUCT_40("f16");
  }
}
#undef SAPE2_TURNED_PRODUCT_40

#define SAPE2_TURNED_PRODUCT_72(TYPE)                                                             \
  asm volatile(                                                                                   \
      "wgmma.mma_async.sync.aligned.m64n72k16.f32." TYPE "." TYPE                                 \
      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, "   \
      "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35}, "    \
      "%36, %37, 1, 1, 1, 0, 1;\n"                                                                \
      : "+f"(c[0][0]), "+f"(c[0][1]), "+f"(c[0][2]), "+f"(c[0][3]), "+f"(c[1][0]), "+f"(c[1][1]), \
        "+f"(c[1][2]), "+f"(c[1][3]), "+f"(c[2][0]), "+f"(c[2][1]), "+f"(c[2][2]), "+f"(c[2][3]), \
        "+f"(c[3][0]), "+f"(c[3][1]), "+f"(c[3][2]), "+f"(c[3][3]), "+f"(c[4][0]), "+f"(c[4][1]), \
        "+f"(c[4][2]), "+f"(c[4][3]), "+f"(c[5][0]), "+f"(c[5][1]), "+f"(c[5][2]), "+f"(c[5][3]), \
        "+f"(c[6][0]), "+f"(c[6][1]), "+f"(c[6][2]), "+f"(c[6][3]), "+f"(c[7][0]), "+f"(c[7][1]), \
        "+f"(c[7][2]), "+f"(c[7][3]), "+f"(c[8][0]), "+f"(c[8][1]), "+f"(c[8][2]), "+f"(c[8][3])  \
      : "l"(a), "l"(b))
/// c += a · b, sixteen of k along the rows of b, 72 columns.
template <class T>
__device__ void wgmma_ss_mn_major(float (&c)[9][4], std::uint64_t a, std::uint64_t b) {
  if constexpr (std::is_same_v<T, Bf16>) {
    SAPE2_TURNED_PRODUCT_72("bf16");
  } else {
    SAPE2_TURNED_PRODUCT_72("f16");
  }
}
#undef SAPE2_TURNED_PRODUCT_72

#define SAPE2_REGISTER_PRODUCT(TYPE)                                                           \
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPE "." TYPE                     \
               " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, " \
               "%17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "  \
               "{%32, %33, %34, %35}, %36, 1, 1, 1, 1;\n"                                      \
               : "+f"(c[0][0]), "+f"(c[0][1]), "+f"(c[0][2]), "+f"(c[0][3]), "+f"(c[1][0]),    \
                 "+f"(c[1][1]), "+f"(c[1][2]), "+f"(c[1][3]), "+f"(c[2][0]), "+f"(c[2][1]),    \
                 "+f"(c[2][2]), "+f"(c[2][3]), "+f"(c[3][0]), "+f"(c[3][1]), "+f"(c[3][2]),    \
                 "+f"(c[3][3]), "+f"(c[4][0]), "+f"(c[4][1]), "+f"(c[4][2]), "+f"(c[4][3]),    \
                 "+f"(c[5][0]), "+f"(c[5][1]), "+f"(c[5][2]), "+f"(c[5][3]), "+f"(c[6][0]),    \
                 "+f"(c[6][1]), "+f"(c[6][2]), "+f"(c[6][3]), "+f"(c[7][0]), "+f"(c[7][1]),    \
                 "+f"(c[7][2]), "+f"(c[7][3])                                                  \
               : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "l"(b))
/// c += a · b, sixteen of k along the rows of b, 64 columns; a from registers.
template <class T>
__device__ void wgmma_rs_mn_major(float (*c)[4], const FragmentA<T>& a, std::uint64_t b) {
  if constexpr (std::is_same_v<T, Bf16>) {
    SAPE2_REGISTER_PRODUCT("bf16");
  } else {
    SAPE2_REGISTER_PRODUCT("f16");
  }
}
#undef SAPE2_REGISTER_PRODUCT

#define SAPE2_REGISTER_PRODUCT_16(TYPE)                                                     \
  asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32." TYPE "." TYPE                  \
               " {%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, %11}, %12, 1, 1, 1, 1;\n"  \
               : "+f"(c[0][0]), "+f"(c[0][1]), "+f"(c[0][2]), "+f"(c[0][3]), "+f"(c[1][0]), \
                 "+f"(c[1][1]), "+f"(c[1][2]), "+f"(c[1][3])                                \
               : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "l"(b))
/// c += a · b, sixteen of k along the rows of b, 16 columns; a from registers.
template <class T>
__device__ void wgmma_rs_mn_major_n16(float (&c)[2][4], const FragmentA<T>& a, std::uint64_t b) {
  if constexpr (std::is_same_v<T, Bf16>) {
    SAPE2_REGISTER_PRODUCT_16("bf16");
  } else {
    SAPE2_REGISTER_PRODUCT_16("f16");
  }
}
#undef SAPE2_REGISTER_PRODUCT_16

#define SAPE2_REGISTER_PRODUCT_64(TYPE)                                                           \
  asm volatile(                                                                                   \
      "{.reg .pred p; setp.ne.b32 p, %37, 0;\n"                                                   \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPE "." TYPE                                 \
      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, "   \
      "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, {%32, %33, %34, %35}, "  \
      "%36, p, 1, 1, 0;}\n"                                                                       \
      : "+f"(c[0][0]), "+f"(c[0][1]), "+f"(c[0][2]), "+f"(c[0][3]), "+f"(c[1][0]), "+f"(c[1][1]), \
        "+f"(c[1][2]), "+f"(c[1][3]), "+f"(c[2][0]), "+f"(c[2][1]), "+f"(c[2][2]), "+f"(c[2][3]), \
        "+f"(c[3][0]), "+f"(c[3][1]), "+f"(c[3][2]), "+f"(c[3][3]), "+f"(c[4][0]), "+f"(c[4][1]), \
        "+f"(c[4][2]), "+f"(c[4][3]), "+f"(c[5][0]), "+f"(c[5][1]), "+f"(c[5][2]), "+f"(c[5][3]), \
        "+f"(c[6][0]), "+f"(c[6][1]), "+f"(c[6][2]), "+f"(c[6][3]), "+f"(c[7][0]), "+f"(c[7][1]), \
        "+f"(c[7][2]), "+f"(c[7][3])                                                              \
      : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "l"(b), "r"(add))
/// c = (or +=) a · bᵀ, sixteen of k, 64 columns; a from registers.
template <class T>
__device__ void wgmma_rs(float (&c)[8][4], const FragmentA<T>& a, std::uint64_t b, int add) {
  if constexpr (std::is_same_v<T, Bf16>) {
    SAPE2_REGISTER_PRODUCT_64("bf16");
  } else {
    SAPE2_REGISTER_PRODUCT_64("f16");
  }
}
#undef SAPE2_REGISTER_PRODUCT_64

#define SAPE2_REGISTER_PRODUCT_32(TYPE)                                                           \
  asm volatile(                                                                                   \
      "{.reg .pred p; setp.ne.b32 p, %21, 0;\n"                                                   \
      "wgmma.mma_async.sync.aligned.m64n32k16.f32." TYPE "." TYPE                                 \
      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, {%16, %17, %18, " \
      "%19}, %20, p, 1, 1, 0;}\n"                                                                 \
      : "+f"(c[0][0]), "+f"(c[0][1]), "+f"(c[0][2]), "+f"(c[0][3]), "+f"(c[1][0]), "+f"(c[1][1]), \
        "+f"(c[1][2]), "+f"(c[1][3]), "+f"(c[2][0]), "+f"(c[2][1]), "+f"(c[2][2]), "+f"(c[2][3]), \
        "+f"(c[3][0]), "+f"(c[3][1]), "+f"(c[3][2]), "+f"(c[3][3])                                \
      : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "l"(b), "r"(add))
/// c = (or +=) a · bᵀ, sixteen of k, 32 columns; a from registers.
template <class T>
__device__ void wgmma_rs(float (&c)[4][4], const FragmentA<T>& a, std::uint64_t b, int add) {
  if constexpr (std::is_same_v<T, Bf16>) {
    SAPE2_REGISTER_PRODUCT_32("bf16");
  } else {
    SAPE2_REGISTER_PRODUCT_32("f16");
  }
}
#undef SAPE2_REGISTER_PRODUCT_32

#define SAPE2_REGISTER_PRODUCT_72(TYPE)                                                           \
  asm volatile(                                                                                   \
      "wgmma.mma_async.sync.aligned.m64n72k16.f32." TYPE "." TYPE                                 \
      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, "   \
      "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35}, "    \
      "{%36, %37, %38, %39}, %40, 1, 1, 1, 1;\n"                                                  \
      : "+f"(c[0][0]), "+f"(c[0][1]), "+f"(c[0][2]), "+f"(c[0][3]), "+f"(c[1][0]), "+f"(c[1][1]), \
        "+f"(c[1][2]), "+f"(c[1][3]), "+f"(c[2][0]), "+f"(c[2][1]), "+f"(c[2][2]), "+f"(c[2][3]), \
        "+f"(c[3][0]), "+f"(c[3][1]), "+f"(c[3][2]), "+f"(c[3][3]), "+f"(c[4][0]), "+f"(c[4][1]), \
        "+f"(c[4][2]), "+f"(c[4][3]), "+f"(c[5][0]), "+f"(c[5][1]), "+f"(c[5][2]), "+f"(c[5][3]), \
        "+f"(c[6][0]), "+f"(c[6][1]), "+f"(c[6][2]), "+f"(c[6][3]), "+f"(c[7][0]), "+f"(c[7][1]), \
        "+f"(c[7][2]), "+f"(c[7][3]), "+f"(c[8][0]), "+f"(c[8][1]), "+f"(c[8][2]), "+f"(c[8][3])  \
      : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "l"(b))
/// c += a · b, sixteen of k along the rows of b, 72 columns; a from registers.
template <class T>
__device__ void wgmma_rs_mn_major_n72(float (&c)[9][4], const FragmentA<T>& a, std::uint64_t b) {
  if constexpr (std::is_same_v<T, Bf16>) {
    SAPE2_REGISTER_PRODUCT_72("bf16");
  } else {
    SAPE2_REGISTER_PRODUCT_72("f16");
  }
}
#undef SAPE2_REGISTER_PRODUCT_72

#endif

}  // namespace sape2::kernels::cuda
