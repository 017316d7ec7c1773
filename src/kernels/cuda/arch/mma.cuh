#pragma once

#include "kernels/cuda/common/element.cuh"
#include "kernels/cuda/common/tile.cuh"

/// Products of 16×16 by 16×8 n8 fragments on tensor cores, sums in float32.
///
/// A warp's lane is (g, t) = (lane / 4, lane % 4). It owns of a 16×16 n8 fragment of A: rows g, g+8
/// and columns 2t, 2t+1, 2t+8, 2t+9; of a 16×8 n8 fragment of B: rows 2t, 2t+1, 2t+8, 2t+9 of
/// column g; of a 16×8 n8 fragment of the result: rows g, g+8 and columns 2t, 2t+1. Float32
/// operands use the same ownership: the order within a sum over k does not matter, so k is
/// renumbered to fit.
namespace sape2::kernels::cuda {

struct Lane {
  int g, t;
  __device__ Lane() : g(threadIdx.x % 32 / 4), t(threadIdx.x % 4) {}
};

/// The diagonal of a 16×16 result, of which lanes t = g/2 have two numbers each: row g's and row
/// g+8's.
__device__ inline float2 diagonal(const float (&c)[2][4], const Lane& lane) {
  return lane.g % 2 ? make_float2(c[0][1], c[1][3]) : make_float2(c[0][0], c[1][2]);
}

/// Two neighbours.
template <class T>
using Pair = std::conditional_t<kIsFp32<T>, float2, std::uint32_t>;

template <class T>
struct FragmentA {  // rows g, g+8 at columns 2t | rows g, g+8 at columns 2t+8, two neighbours each
  Pair<T> r[4];
};

template <class T>
struct FragmentB {  // rows 2t, 2t+1 | 2t+8, 2t+9
  Pair<T> r[2];
};

/// Makes all of a result 0.
template <int N8>
__device__ void clear(float (&c)[N8][4]) {
#pragma unroll
  for (int e = 0; e < N8 * 4; ++e) c[e / 4][e % 4] = 0.0F;
}

template <class T>
__device__ void set(std::uint32_t& to, float a, float b) {
  to = pack<T>(a, b);
}
template <class T>
__device__ void set(float2& to, float a, float b) {
  to = make_float2(a, b);
}

// ------------------------------------------------------------------------------- one product

template <class T>
__device__ void mma(float (&c)[4], const FragmentA<T>& a, const FragmentB<T>& b) {
  if constexpr (std::is_same_v<T, Bf16>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "r"(b.r[0]), "r"(b.r[1]));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "r"(b.r[0]), "r"(b.r[1]));
  }
}

__device__ inline std::uint32_t to_tf32(float x) {
  std::uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return bits;
}

/// A float32 as the sum of two tf32 numbers, good to about 22 bits.
struct SplitTf32 {
  std::uint32_t high, low;
  __device__ explicit SplitTf32(float x) {
    high = to_tf32(x);
    low = to_tf32(x - __uint_as_float(high));
  }
};

__device__ inline void mma_tf32(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
      "{%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// d = a · b + c.
__device__ inline void multiply_tf32(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                     std::uint32_t b1, const float (&c)[4]) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
      "{%8,%9}, {%10,%11,%12,%13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(c[0]), "f"(c[1]),
        "f"(c[2]), "f"(c[3]));
}

/// Float32 accuracy from three tf32 products. wgmma cuts off what does not fit into a
/// sum, always towards 0, and over a long sum that would add up: so it adds eight products only,
/// and what they come to is added with rounding. An infinity's low part is not a number, which is
/// what the sum would become anyway.
template <>
__device__ inline void mma<float>(float (&c)[4], const FragmentA<float>& a,
                                  const FragmentB<float>& b) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float2 top = a.r[2 * half], bottom = a.r[2 * half + 1];
    const SplitTf32 a0(top.x), a1(bottom.x), a2(top.y), a3(bottom.y);
    const SplitTf32 b0(b.r[half].x), b1(b.r[half].y);
    const std::uint32_t high[4] = {a0.high, a1.high, a2.high, a3.high};
    const std::uint32_t low[4] = {a0.low, a1.low, a2.low, a3.low};
    float eight[4] = {};
    mma_tf32(eight, low, b0.high, b1.high);
    mma_tf32(eight, high, b0.low, b1.low);
    mma_tf32(eight, high, b0.high, b1.high);
#pragma unroll
    for (int e = 0; e < 4; ++e) c[e] += eight[e];
  }
}

/// One tf32 product, for those who switched it on.
template <>
__device__ inline void mma<Tf32>(float (&c)[4], const FragmentA<Tf32>& a,
                                 const FragmentB<Tf32>& b) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float2 top = a.r[2 * half], bottom = a.r[2 * half + 1];
    const std::uint32_t rounded[4] = {to_tf32(top.x), to_tf32(bottom.x), to_tf32(top.y),
                                      to_tf32(bottom.y)};
    mma_tf32(c, rounded, to_tf32(b.r[half].x), to_tf32(b.r[half].y));
  }
}

// ------------------------------------------------------------------- n8 fragments from shared
// memory

/// Rows row … row+15, columns column … column+15 of a tile as A.
template <class T>
__device__ FragmentA<T> load_a(const Tile<T>& tile, int row, int column) {
  FragmentA<T> a;
  if constexpr (kIsFp32<T>) {
    const Lane lane;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      a.r[i] = *reinterpret_cast<const float2*>(
          &tile.at(row + lane.g + i % 2 * 8, column + 2 * lane.t + i / 2 * 8));
  } else {
    const int lane = threadIdx.x % 32;
    const auto address = shared_address(tile.chunk(row + lane % 16, column / 8 + lane / 16));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(a.r[0]), "=r"(a.r[1]), "=r"(a.r[2]), "=r"(a.r[3])
                 : "r"(address));
  }
  return a;
}

/// A = tileᵀ: its rows are the tile's columns column … column+15, k runs along the tile's rows row
/// … row+15.
template <class T>
__device__ FragmentA<T> load_a_transposed(const Tile<T>& tile, int row, int column) {
  FragmentA<T> a;
  if constexpr (kIsFp32<T>) {
    const Lane lane;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int k = row + 2 * lane.t + i / 2 * 8, c = column + lane.g + i % 2 * 8;
      a.r[i] = make_float2(tile.at(k, c), tile.at(k + 1, c));
    }
  } else {
    const int lane = threadIdx.x % 32, matrix = lane / 8;
    const auto address =
        shared_address(tile.chunk(row + lane % 8 + matrix / 2 * 8, column / 8 + matrix % 2));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(a.r[0]), "=r"(a.r[1]), "=r"(a.r[2]), "=r"(a.r[3])
                 : "r"(address));
  }
  return a;
}

/// Two neighbouring n8 fragments of B = tileᵀ: columns of B are the tile's rows row … row+15, k
/// runs along the tile's columns column … column+15.
template <class T>
__device__ void load_b_rows(FragmentB<T> (&b)[2], const Tile<T>& tile, int row, int column) {
  if constexpr (kIsFp32<T>) {
    const Lane lane;
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int i = 0; i < 2; ++i)
        b[n].r[i] = *reinterpret_cast<const float2*>(
            &tile.at(row + 8 * n + lane.g, column + 2 * lane.t + 8 * i));
  } else {
    const int lane = threadIdx.x % 32, matrix = lane / 8;
    const auto address =
        shared_address(tile.chunk(row + lane % 8 + matrix / 2 * 8, column / 8 + matrix % 2));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(b[0].r[0]), "=r"(b[0].r[1]), "=r"(b[1].r[0]), "=r"(b[1].r[1])
                 : "r"(address));
  }
}

/// Two neighbouring n8 fragments of B = tile: k runs along the tile's rows row … row+15, columns of
/// B are the tile's columns column … column+15.
template <class T>
__device__ void load_b_columns(FragmentB<T> (&b)[2], const Tile<T>& tile, int row, int column) {
  if constexpr (kIsFp32<T>) {
    const Lane lane;
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int k = row + 2 * lane.t + 8 * i, c = column + 8 * n + lane.g;
        b[n].r[i] = make_float2(tile.at(k, c), tile.at(k + 1, c));
      }
  } else {
    const int lane = threadIdx.x % 32, matrix = lane / 8;
    const auto address =
        shared_address(tile.chunk(row + lane % 8 + matrix % 2 * 8, column / 8 + matrix / 2));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(b[0].r[0]), "=r"(b[0].r[1]), "=r"(b[1].r[0]), "=r"(b[1].r[1])
                 : "r"(address));
  }
}

/// Two neighbouring n8 fragments of a result as one n8 fragment of A for the next product.
template <class T>
__device__ FragmentA<T> as_a(const float (&left)[4], const float (&right)[4]) {
  FragmentA<T> a;
  set<T>(a.r[0], left[0], left[1]);
  set<T>(a.r[1], left[2], left[3]);
  set<T>(a.r[2], right[0], right[1]);
  set<T>(a.r[3], right[2], right[3]);
  return a;
}

/// A 16-bit fragment to a tile; `address` is that of this lane's n8 fragment: row lane % 16,
/// columns from lane / 16 · 8 on.
template <class T>
__device__ void store_fragment(std::uint32_t address, const FragmentA<T>& a) {
#if __CUDA_ARCH__ >= 900
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(address),
               "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3])
               : "memory");
#endif
}

/// Two neighbours of a fragment to a tile, column even.
template <class T>
__device__ void store_pair(const Tile<T>& tile, int row, int column, const Pair<T>& pair) {
  *reinterpret_cast<Pair<T>*>(&tile.at(row, column)) = pair;
}

// ----------------------------------------------------------------------------- whole products

/// c += a · tileᵀ: 16 rows of `a` (row … row+15), as many columns as `c` has, k along both rows.
template <class T, int N8>
__device__ void add_product_with_rows(float (&c)[N8][4], const Tile<T>& a, int row,
                                      const Tile<T>& b, int k_size) {
  for (int k = 0; k < k_size; k += 16) {
    const auto fragment = load_a(a, row, k);
#pragma unroll
    for (int n8 = 0; n8 < N8; n8 += 2) {
      FragmentB<T> columns[2];
      load_b_rows(columns, b, n8 * 8, k);
      mma(c[n8], fragment, columns[0]);
      mma(c[n8 + 1], fragment, columns[1]);
    }
  }
}

/// c += p · tile: `p` is a result of 16 × (8·KN8); its rows meet the tile's rows.
template <class T, int N8, int KN8>
__device__ void add_product_with_columns(float (&c)[N8][4], const float (&p)[KN8][4],
                                         const Tile<T>& b, int first_column = 0) {
#pragma unroll
  for (int k = 0; k < KN8; k += 2) {
    const auto fragment = as_a<T>(p[k], p[k + 1]);
#pragma unroll
    for (int n8 = 0; n8 < N8; n8 += 2) {
      FragmentB<T> columns[2];
      load_b_columns(columns, b, k * 8, first_column + n8 * 8);
      mma(c[n8], fragment, columns[0]);
      mma(c[n8 + 1], fragment, columns[1]);
    }
  }
}

/// One of this lane's two rows of a result, times `factor`, to `to`, which has `head_size`
/// elements.
template <class T, int N8>
__device__ void store_row(T* to, const float (&c)[N8][4], int half, float factor, int head_size,
                          bool aligned) {
  const Lane lane;
#pragma unroll
  for (int n8 = 0; n8 < N8; ++n8) {
    const int column = n8 * 8 + 2 * lane.t;
    const float a = c[n8][2 * half] * factor, b = c[n8][2 * half + 1] * factor;
    if (aligned) {
      if (column >= head_size) continue;
      if constexpr (kIsFp32<T>) {
        *reinterpret_cast<float2*>(to + column) = make_float2(a, b);
      } else {
        *reinterpret_cast<std::uint32_t*>(to + column) = pack<T>(a, b);
      }
    } else {
      if (column < head_size) to[column] = narrow<T>(a);
      if (column + 1 < head_size) to[column + 1] = narrow<T>(b);
    }
  }
}

}  // namespace sape2::kernels::cuda
