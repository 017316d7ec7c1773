#pragma once

#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/common/tile.cuh"

/// Tiles of `Size` columns in shared memory, read through addresses that are worked out once a
/// lane, where address arithmetic would be most of the work.
namespace sape2::kernels::cuda {

/// Bytes of a row of a `Tile` with this many columns.
template <int Size>
inline constexpr int kRowBytes = Size == 64 ? 128 : 2 * Size + 16;

/// Sixteen columns further.
template <int Size>
__device__ std::uint32_t next_columns(std::uint32_t address, int sixteens) {
  return Size == 64 ? address ^ 32 * sixteens : address + 32 * sixteens;
}

/// Where this lane reads in matrix loads from row 0, column 0 of a tile.
template <int Size>
struct LdmatrixOffsets {
  std::uint32_t a;          // as A
  std::uint32_t b_rows;     // as B = tileᵀ
  std::uint32_t b_columns;  // as B = tile

  __device__ LdmatrixOffsets() {
    const int lane = threadIdx.x % 32, eight = lane / 8;
    a = offset(lane % 16, lane / 16);
    b_rows = offset(lane % 8 + eight / 2 * 8, eight % 2);
    b_columns = offset(lane % 8 + eight % 2 * 8, eight / 2);
  }
  __device__ static std::uint32_t offset(int row, int chunk) {
    return row * kRowBytes<Size> + (Size == 64 ? chunk ^ row % 8 : chunk) * 16;
  }
};

__device__ inline void ldmatrix_x4(std::uint32_t (&r)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address));
}
__device__ inline void ldmatrix_x4_trans(std::uint32_t (&r)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address));
}

/// c (two chunks) += a · b, b as two neighbouring chunks.
template <class T>
__device__ void mma_pair(float (&left)[4], float (&right)[4], const FragmentA<T>& a,
                         const std::uint32_t (&b)[4]) {
  mma(left, a, FragmentB<T>{b[0], b[1]});
  mma(right, a, FragmentB<T>{b[2], b[3]});
}

/// Sixteen rows of a tile as A.
template <class T, int Size>
struct RowsAsA {
  FragmentA<T> k[Size / 16];

  __device__ explicit RowsAsA(std::uint32_t address) {
#pragma unroll
    for (int i = 0; i < Size / 16; ++i) ldmatrix_x4(k[i].r, next_columns<Size>(address, i));
  }
};

/// c = a · tileᵀ for sixteen rows of the tile; `address`: LdmatrixOffsets::b_rows there.
template <class T, int Size>
__device__ void multiply(float (&c)[2][4], const RowsAsA<T, Size>& a, std::uint32_t address) {
#pragma unroll
  for (int e = 0; e < 8; ++e) c[e / 4][e % 4] = 0.0F;
#pragma unroll
  for (int i = 0; i < Size / 16; ++i) {
    std::uint32_t b[4];
    ldmatrix_x4(b, next_columns<Size>(address, i));
    mma_pair<T>(c[0], c[1], a.k[i], b);
  }
}

/// c += a · tile for sixteen rows of the tile; `address`: LdmatrixOffsets::b_columns there.
template <class T, int N8>
__device__ void mma_columns(float (&c)[N8][4], const FragmentA<T>& a, std::uint32_t address) {
#pragma unroll
  for (int i = 0; i < N8 / 2; ++i) {
    std::uint32_t b[4];
    ldmatrix_x4_trans(b, next_columns<N8 * 8>(address, i));
    mma_pair<T>(c[2 * i], c[2 * i + 1], a, b);
  }
}

/// A matrix of 16-bit numbers whose width is only known at run time: rows of `pitch` bytes, an odd
/// number of 16-byte chunks.
template <class T>
struct Padded {
  unsigned char* data;
  int pitch;

  __device__ T* row(int index) const { return reinterpret_cast<T*>(data + index * pitch); }
  /// Where this lane reads rows row … row+15 from column 0 on, as A or, turned, as B.
  __device__ std::uint32_t a(int row) const {
    const int lane = threadIdx.x % 32;
    return shared_address(data + (row + lane % 16) * pitch + lane / 16 * 16);
  }
  /// A fragment to 16 rows from `row` on, 16 columns from `column` on.
  __device__ void store(int row, int column, const FragmentA<T>& fragment) const {
#if __CUDA_ARCH__ >= 900
    store_fragment(a(row) + 2 * column, fragment);
#else
    const Lane lane;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      *reinterpret_cast<std::uint32_t*>(data + (row + lane.g + i % 2 * 8) * pitch + 2 * column +
                                        i / 2 * 16 + lane.t * 4) = fragment.r[i];
#endif
  }
  /// Where it reads them as B = matrixᵀ or, turned, as A = matrixᵀ.
  __device__ std::uint32_t b_rows(int row) const {
    const int lane = threadIdx.x % 32, eight = lane / 8;
    return shared_address(data + (row + lane % 8 + eight / 2 * 8) * pitch + eight % 2 * 16);
  }
};

}  // namespace sape2::kernels::cuda
