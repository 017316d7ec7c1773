#pragma once

#include "sape2/kernels/types.h"

#include "kernels/cuda/common/element.cuh"
#include "kernels/cuda/common/tile_layout.h"

/// Matrices in shared memory, and how rows of a tensor come into them.
namespace sape2::kernels::cuda {

/// (rows, columns) in shared memory, in chunks of 16 bytes. 16-bit tiles whose width is a multiple
/// of 64 are swizzled: panels of 64 columns, the chunks of a row exchanged by the row's number;
/// other rows are padded. Both ways the eight rows of a matrix load fall into different banks.
template <class T>
struct Tile {
  unsigned char* data;
  int rows, columns;  // multiples of 8 and 16

  static constexpr int kPerChunk = 16 / sizeof(T);

  using Layout = TileLayout<sizeof(T)>;
  __host__ __device__ static constexpr bool swizzled(int columns) {
    return Layout::swizzled(columns);
  }
  __host__ __device__ static constexpr int bytes(int rows, int columns) {
    return Layout::bytes(rows, columns);
  }
  __host__ __device__ static constexpr int pitch(int columns) { return Layout::pitch(columns); }

  __device__ unsigned char* chunk(int row, int index) const {
    if (swizzled(columns)) return data + (index / 8 * rows + row) * 128 + ((index ^ row) % 8) * 16;
    return data + row * pitch(columns) + index * 16;
  }
  __device__ T& at(int row, int column) const {
    return reinterpret_cast<T*>(chunk(row, column / kPerChunk))[column % kPerChunk];
  }
};

/// Two tiles of one size behind each other, one being filled while the other is read.
template <class T>
struct TilePair {
  unsigned char* data;
  int rows, columns;

  __host__ __device__ static constexpr int bytes(int rows, int columns) {
    return 2 * Tile<T>::bytes(rows, columns);
  }
  __device__ Tile<T> operator[](int index) const {
    return {data + index * Tile<T>::bytes(rows, columns), rows, columns};
  }
};

__device__ inline unsigned char* aligned_shared(unsigned char* shared) {
  const auto address = reinterpret_cast<std::uintptr_t>(shared);
  return shared + (kSharedAlignment - address % kSharedAlignment) % kSharedAlignment;
}

__device__ inline std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

/// Copies 16 bytes without passing through registers; nothing is read and zeros are written if not
/// `valid`.
__device__ inline void cp_async_16(void* to, const void* from, bool valid) {
  const int size = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(size));
}
__device__ inline void cp_async_commit() {
  asm volatile("cp.async.commit_group;");
}
template <int Pending>
__device__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending));
}

/// A number of each head, or a standard one where there are none.
__device__ inline float per_head(const float* values, int head, float standard) {
  return values == nullptr ? standard : values[head];
}

/// One head of a (images, heads, tokens, head size) tensor.
template <class T>
struct HeadView {
  T* data;
  std::int64_t token_stride;

  __device__ T* row(std::int64_t token) const { return data + token * token_stride; }
};

template <class T>
__device__ HeadView<const T> head_of(const ConstView& view, std::int64_t image, std::int64_t head) {
  return {static_cast<const T*>(view.data) + image * view.image_stride + head * view.head_stride,
          view.token_stride};
}
template <class T>
__device__ HeadView<T> head_of(const View& view, std::int64_t image, std::int64_t head) {
  return {static_cast<T*>(view.data) + image * view.image_stride + head * view.head_stride,
          view.token_stride};
}

/// Starts loading tokens `token_of(row)` (negative: a row of zeros) into the rows of a tile of
/// `Columns` columns; `Rows` is their number where it is known beforehand, else 0. `aligned`: every
/// row of the tensor starts at 16 bytes and is a multiple of them long. No branches in the fast
/// case: a row of zeros "reads" nothing of token 0.
template <int Columns, int Rows = 0, class T, class TokenOf>
__device__ void load_rows(const Tile<T>& tile, const HeadView<const T>& from, int head_size,
                          bool aligned, TokenOf token_of) {
  constexpr int kChunks = Columns / Tile<T>::kPerChunk;
  constexpr int kStep = kThreads / kChunks;
  if (aligned) {
    const int chunk = threadIdx.x % kChunks, column = chunk * Tile<T>::kPerChunk;
    const bool in_head = column < head_size;
    const T* const source = from.data + (in_head ? column : 0);
    const auto copy = [&](int row) {
      const int token = token_of(row);
      cp_async_16(tile.chunk(row, chunk), source + max(token, 0) * from.token_stride,
                  in_head && token >= 0);
    };
    const int first = threadIdx.x / kChunks;
    if constexpr (Rows > 0) {
#pragma unroll
      for (int sweep = 0; sweep < Rows / kStep; ++sweep) copy(first + sweep * kStep);
    } else {
#pragma unroll 4
      for (int row = first; row < tile.rows; row += kStep) copy(row);
    }
    return;
  }
#pragma unroll 1
  for (int i = threadIdx.x; i < tile.rows * Columns; i += kThreads) {
    const int row = i / Columns, column = i % Columns;
    const int token = token_of(row);
    const bool valid = token >= 0 && column < head_size;
    tile.at(row, column) = valid ? from.row(token)[column] : narrow<T>(0.0F);
  }
}

}  // namespace sape2::kernels::cuda
