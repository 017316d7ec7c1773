#pragma once

#include "kernels/cuda/head_layout.h"
#include "kernels/cuda/mma.cuh"

/// Matrices of a whole head in shared memory.
namespace sape2::kernels::cuda {

/// (slots, slots): rows are queries, columns keys. Sixteen rows are one stretch of memory.
template <class T>
struct Square {
  unsigned char* data;
  int pitch;

  __device__ unsigned char* piece(int row, int index) const {
    return data + row * pitch + index * 16;
  }
  __device__ T& at(int row, int column) const {
    return reinterpret_cast<T*>(data + row * pitch)[column];
  }
};

template <class T>
__device__ FragmentA<T> load_a(const Square<T>& square, int row, int column) {
  FragmentA<T> a;
  const int lane = threadIdx.x % 32;
  const auto address = shared_address(square.piece(row + lane % 16, column / 8 + lane / 16));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(a.r[0]), "=r"(a.r[1]), "=r"(a.r[2]), "=r"(a.r[3])
               : "r"(address));
  return a;
}

/// A = matrixᵀ: rows of A are the matrix's columns column … column+15, k runs along its rows row …
/// row+15.
template <class T, class Matrix>
__device__ FragmentA<T> load_a_columns(const Matrix& matrix, int row, int column) {
  FragmentA<T> a;
  const int lane = threadIdx.x % 32, eight = lane / 8;
  const auto address =
      shared_address(matrix.piece(row + lane % 8 + eight / 2 * 8, column / 8 + eight % 2));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(a.r[0]), "=r"(a.r[1]), "=r"(a.r[2]), "=r"(a.r[3])
               : "r"(address));
  return a;
}

/// Sixteen rows of a tile as A.
template <class T, int Size>
struct RowsAsA {
  FragmentA<T> k[Size / 16];

  __device__ RowsAsA(const Tile<T>& tile, int row) {
#pragma unroll
    for (int i = 0; i < Size / 16; ++i) k[i] = load_a(tile, row, 16 * i);
  }
};

/// c = a · tileᵀ for sixteen rows of the tile.
template <class T, int Size>
__device__ void multiply(float (&c)[2][4], const RowsAsA<T, Size>& a, const Tile<T>& tile,
                         int row) {
#pragma unroll
  for (int piece = 0; piece < 2; ++piece)
#pragma unroll
    for (int e = 0; e < 4; ++e) c[piece][e] = 0.0F;
#pragma unroll
  for (int i = 0; i < Size / 16; ++i) {
    FragmentB<T> b[2];
    load_b_rows(b, tile, row, 16 * i);
    multiply_add(c[0], a.k[i], b[0]);
    multiply_add(c[1], a.k[i], b[1]);
  }
}

/// c += a · tile, sixteen rows of the tile from `row` on.
template <class T, int Pieces>
__device__ void multiply_add_columns(float (&c)[Pieces][4], const FragmentA<T>& a,
                                     const Tile<T>& tile, int row) {
#pragma unroll
  for (int piece = 0; piece < Pieces; piece += 2) {
    FragmentB<T> b[2];
    load_b_columns(b, tile, row, piece * 8);
    multiply_add(c[piece], a, b[0]);
    multiply_add(c[piece + 1], a, b[1]);
  }
}

/// The token of every slot.
__device__ inline void note_tokens(const HeadLayout& l, const Geometry& g, std::int16_t* tokens) {
  for (int slot = threadIdx.x; slot < l.slots; slot += blockDim.x) {
    const int y = slot / l.row_width, x = slot % l.row_width;
    const int prefix = slot - l.grid_slots;
    tokens[slot] = y < g.rows ? (x < g.cols ? g.prefix + y * g.cols + x : -1)
                              : (prefix < g.prefix ? prefix : -1);
  }
}

/// Starts copying a head's tokens into their slots.
template <int Size, class T>
__device__ void load_slots(const Tile<T>& tile, const HeadView<const T>& from,
                           const std::int16_t* tokens, const Geometry& g) {
  constexpr int kPieces = Size / Tile<T>::kPerPiece;
  if (g.aligned) {
#pragma unroll 4
    for (int i = threadIdx.x; i < tile.rows * kPieces; i += blockDim.x) {
      const int row = i / kPieces, piece = i % kPieces, token = tokens[row];
      const bool in_head = piece * Tile<T>::kPerPiece < g.head_size;
      copy_async_16(tile.piece(row, piece),
                    from.data + max(token, 0) * from.token_stride +
                        (in_head ? piece : 0) * Tile<T>::kPerPiece,
                    in_head && token >= 0);
    }
    return;
  }
#pragma unroll 1
  for (int i = threadIdx.x; i < tile.rows * Size; i += blockDim.x) {
    const int row = i / Size, column = i % Size, token = tokens[row];
    const bool valid = token >= 0 && column < g.head_size;
    tile.at(row, column) = valid ? from.row(token)[column] : narrow<T>(0.0F);
  }
}

/// Where eight neighbouring slots stand: their grid row and first column, or −1.
struct EightSlots {
  int y = -1, x = -1;

  EightSlots() = default;
  __device__ EightSlots(const HeadLayout& l, int first) {
    if (first >= l.grid_slots) return;
    y = l.row_width == 16 ? first / 16 : first / 8;
    x = first & (l.row_width - 1);
  }
};

/// This warp's slots, and this lane's rows of them.
struct OwnSlots {
  int warp, first;      // of the block; first slot
  EightSlots eight[2];  // of rows g and g + 8

  __device__ explicit OwnSlots(const HeadLayout& l)
      : warp(threadIdx.x / 32), first(warp * 16), eight{{l, first}, {l, first + 8}} {}
};

/// The sum over a block of any number of warps, in a fixed order; for thread 0.
__device__ inline float head_sum(float x, float* shared) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
  __syncthreads();
  float sum = 0.0F;
  if (threadIdx.x == 0)
    for (int warp = 0; warp < blockDim.x / 32; ++warp) sum += shared[warp];
  return sum;
}

}  // namespace sape2::kernels::cuda
