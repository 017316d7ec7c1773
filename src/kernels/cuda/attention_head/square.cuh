#pragma once

#include "kernels/cuda/arch/ldmatrix.cuh"
#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/attention_head/kernels.h"
#include "kernels/cuda/attention_head/plan.cuh"
#include "kernels/cuda/attention_head/products.cuh"
#include "kernels/cuda/attention_head/vector_gradients.cuh"
#include "kernels/cuda/common/element.cuh"
#include "kernels/cuda/common/online_softmax.cuh"

/// Backward's products that write a warp's rows of the square, or sum them up.
namespace sape2::kernels::cuda::head {

/// Sixteen keys' numbers of the warp's rows, as A. `AtOnce`: by one instruction, which needs them
/// all at the same time; several blocks of a multiprocessor have no registers to spare for that.
template <bool AtOnce, class T>
__device__ void put_matrices(const Padded<T>& to, int own_row, int slot,
                             const std::uint32_t (&pairs)[4]) {
  if constexpr (AtOnce)
    return store_fragment(to.a(own_row) + slot * 2,
                          FragmentA<T>{pairs[0], pairs[1], pairs[2], pairs[3]});
  const Lane lane;
#pragma unroll
  for (int i = 0; i < 4; ++i)
    *reinterpret_cast<std::uint32_t*>(to.data + (own_row + lane.g + i % 2 * 8) * to.pitch +
                                      4 * lane.t + i / 2 * 16 + slot * 2) = pairs[i];
}

/// Logits become weights.
template <bool AtOnce, class T>
__device__ void put_weights(const Padded<T>& square, int own_row, int slot,
                            const float (&c)[2][4]) {
  std::uint32_t pairs[4];
#pragma unroll
  for (int i = 0; i < 4; ++i)
    pairs[i] = pack<T>(power_of_2(c[i / 2][i % 2 * 2]), power_of_2(c[i / 2][i % 2 * 2 + 1]));
  put_matrices<AtOnce>(square, own_row, slot, pairs);
}

/// weights ∘ (dout · vᵀ − dout · out) of the warp's rows, to `logits`, which may be `square`
/// itself. `values`: where v's tile begins; see(gradients, the same rounded, slot) of each sixteen.
template <class T, class Products, class Rows, class See>
__device__ void make_logit_gradients(const Products& products, const Rows& own_dout,
                                     std::uint32_t values, const Padded<T>& square,
                                     const Padded<T>& logits, bool two_squares, int own_row,
                                     const float* deltas, See see) {
  const Lane lane;
  const std::uint32_t own_weights = square.a(own_row);
  const float delta[2] = {deltas[own_row + lane.g], deltas[own_row + lane.g + 8]};
  const auto as_is = [](int, float(&)[2][4]) {};
  products.for_rows(own_dout, values, as_is, [&](int first, auto& c) {
    constexpr int kCount = sizeof(c) / sizeof(c[0]);
    if (!products.works) return;
    FragmentA<T> weights[kCount];
#pragma unroll
    for (int n = 0; n < kCount; ++n) ldmatrix_x4(weights[n].r, own_weights + (first + 16 * n) * 2);
    if (!two_squares) __syncwarp();  // gradients take the weights' places
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      const int slot = first + 16 * n;
      FragmentA<T> gradient;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 weight = unpack<T>(weights[n].r[i]);
        float& left = c[n][i / 2][i % 2 * 2];
        float& right = c[n][i / 2][i % 2 * 2 + 1];
        left = weight.x * (left - delta[i % 2]);
        right = weight.y * (right - delta[i % 2]);
        gradient.r[i] = pack<T>(left, right);
      }
      put_matrices<Products::kByWarpgroups>(logits, own_row, slot, gradient.r);
      see(c[n], gradient, slot);
    }
  });
}

/// c += the warp's columns of the square, its slots as keys, times a tile; `columns`: where they
/// begin in the first row.
template <class T, class Products, int N8>
__device__ void add_by_keys(const Products& products, float (&c)[N8][4], std::uint32_t tile,
                            const Padded<T>& square, std::uint32_t columns) {
  products.add_columns(c, tile, products.slots, [&](std::uint32_t(&numbers)[4], int slot) {
    if (products.works) ldmatrix_x4_trans(numbers, columns + slot * square.pitch);
  });
}
/// c += the warp's rows of the square, its slots as queries, times a tile.
template <class Products, int N8>
__device__ void add_by_queries(const Products& products, float (&c)[N8][4], std::uint32_t tile,
                               std::uint32_t rows) {
  products.add_columns(c, tile, products.slots, [&](std::uint32_t(&numbers)[4], int slot) {
    if (products.works) ldmatrix_x4(numbers, rows + slot * 2);
  });
}

/// The gradients of table values back through the tables, for q's rows or k's; in units of the
/// logits' scale.
template <class T, class Products, int N8, class BinsOf>
__device__ void add_tables_backward(const ForwardParams& p, const Plan& plan,
                                    const Products& products, float (&to)[N8][4], bool of_q,
                                    std::uint32_t tables, int own_row, BinsOf bins_of) {
  // q's tables are the first set, k's the last.
  if (!plan.has_tables || (of_q ? !p.stage.first_from_q : p.stage.first_from_q && plan.sets == 1))
    return;
  const auto& l = plan.layout;
  const int set = of_q ? 0 : plan.sets - 1;
  const std::uint32_t bins = bins_of(set).a(own_row);
  products.add_columns(to, tables + set * l.table_rows * kRowBytes<N8 * 8>, l.table_rows,
                       [&](std::uint32_t(&gradients)[4], int row) {
                         if (products.works) ldmatrix_x4(gradients, bins + row * 2);
                       });
  const float unit = 1.0F / p.attention.scale;
#pragma unroll
  for (int i = 0; i < N8 * 4; ++i) to[i / 4][i % 4] *= unit;
}

}  // namespace sape2::kernels::cuda::head
