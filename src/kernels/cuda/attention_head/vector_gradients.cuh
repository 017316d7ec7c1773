#pragma once

#include "kernels/cuda/arch/ldmatrix.cuh"
#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/attention_head/distance_bias.cuh"
#include "kernels/cuda/attention_head/layout.h"
#include "kernels/cuda/attention_head/logits.cuh"
#include "kernels/cuda/attention_head/plan.cuh"
#include "kernels/cuda/attention_head/slots.cuh"
#include "kernels/cuda/common/element.cuh"
#include "kernels/cuda/common/online_softmax.cuh"
#include "kernels/cuda/common/tile.cuh"
#include "kernels/cuda/host/params.h"

/// From the logits' gradients of a whole head, in shared memory, to those of its vectors.
namespace sape2::kernels::cuda::head {

/// What a query's logits are diminished by before they become weights, in powers of 2.
__device__ inline float less_of(const SoftmaxRow& row) {
  return fmaf(row.maximum, kLog2E, __log2f(row.sum));
}

/// The same of this lane's two queries; +∞ where there is no token, and all weights are 0.
struct QueryRows {
  float less[2];

  __device__ void read(const Plan& plan, const SoftmaxRow* softmax, const std::int16_t* tokens,
                       int own_row) {
    const Lane lane;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int token = token_of(plan, tokens, own_row, lane.g + 8 * half);
      less[half] = less_of(token < 0 ? SoftmaxRow{INFINITY, 1.0F} : softmax[token]);
    }
  }
};

/// dout · out of the warp's rows: `out` is read early, multiplied once dout has arrived.
template <class T, int Size, GridKind Grid>
struct RowsDelta {
  using Copies = SlotCopies<T, Size, Grid>;
  uint4 chunks[Copies::kSweeps];

  __device__ RowsDelta(const Copies& copies, const HeadView<const T>& out, const Geometry& g) {
#pragma unroll
    for (int sweep = 0; sweep < Copies::kSweeps; ++sweep) {
      chunks[sweep] = {};
      if (copies.tokens[sweep] < 0 || copies.column >= g.head_size) continue;
      const T* const row = copies.row(out, sweep);
      if (g.aligned) {
        chunks[sweep] = *reinterpret_cast<const uint4*>(row);
      } else {
        std::uint32_t words[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int left = g.head_size - copies.column - 2 * i;
          words[i] =
              pack<T>(left > 0 ? widen(row[2 * i]) : 0.0F, left > 1 ? widen(row[2 * i + 1]) : 0.0F);
        }
        chunks[sweep] = {words[0], words[1], words[2], words[3]};
      }
    }
  }

  __device__ void finish(const unsigned char* own_dout, float* own_deltas) const {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int sweep = 0; sweep < Copies::kSweeps; ++sweep) {
      const int place = Copies::place(sweep);
      const auto other = *reinterpret_cast<const uint4*>(
          own_dout + LdmatrixOffsets<Size>::offset(place, lane % Copies::kLanes));
      const std::uint32_t a[4] = {chunks[sweep].x, chunks[sweep].y, chunks[sweep].z,
                                  chunks[sweep].w};
      const std::uint32_t b[4] = {other.x, other.y, other.z, other.w};
      float sum = 0.0F;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 left = unpack<T>(a[i]), right = unpack<T>(b[i]);
        sum += left.x * right.x + left.y * right.y;
      }
#pragma unroll
      for (int step = Copies::kLanes / 2; step > 0; step /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, step);
      if (lane % Copies::kLanes == 0) own_deltas[place] = sum;
    }
  }
};

/// Eights of grid rows that a kernel adds up along.
template <GridKind Grid>
inline constexpr int kSumsAlongY = Grid == GridKind::any ? kMostSlots / 64
                                                         : (longest_line(Grid) + 7) / 8;

/// The direct form: sums along grid columns and rows, made by products with zeros and ones, or by
/// additions where a lane's keys keep to their columns.
template <class T, int Eights>
struct DirectSums {
  static constexpr std::uint32_t kOne = std::is_same_v<T, Bf16> ? 0x3f80u : 0x3c00u;
  float along_x[2][4] = {}, along_y[Eights][4] = {};
  // Two eights of keys whose place in their rows does not change from sixteen to sixteen.
  FragmentB<T> x[2];  // key → its column, first and second eight of these
  FragmentB<T> ones;  // of keys that are no prefix tokens beside the grid

  __device__ explicit DirectSums(const Plan& plan) { see(plan, 0); }

  /// `exact`, `gradient`: of sixteen keys from `slot` on.
  __device__ void add(const float (&exact)[2][4], FragmentA<T> gradient, const Plan& plan,
                      int slot) {
    const auto& l = plan.layout;
    if (slot >= l.grid_slots) return;
    if (slot + 8 >= l.grid_slots) gradient.r[2] = gradient.r[3] = 0u;
    const bool in_fours = l.row_width == 12;
    if (in_fours) see(plan, slot);
    if (l.row_width == 16) {
#pragma unroll
      for (int e = 0; e < 8; ++e) along_x[e / 4][e % 4] += exact[e / 4][e % 4];
    } else {
      mma(along_x[0], gradient, x[0]);
      if (l.row_width != 8) mma(along_x[1], gradient, x[1]);
    }
    const int key = in_fours ? slot + 2 * Lane().t : slot, row = l.row_of(key);
    const int next_row = in_fours ? l.row_of(key + 8) : l.row_width == 16 ? row : row + 1;
#pragma unroll
    for (int i = 0; i < Eights; ++i) {
      if (!in_fours && row / 8 != i && next_row / 8 != i) continue;  // all lanes alike
      const int column = i * 8 + Lane().g;
      mma(along_y[i], gradient,
          FragmentB<T>{column == row ? ones.r[0] : 0u, column == next_row ? ones.r[1] : 0u});
    }
  }

  /// To the warp's lines as they are.
  __device__ void put(const Layout& l, const Geometry& g, float* lines) const {
    for_entries(l, g, lines, [](float& place, float sum) { place = sum; });
  }
  /// The warp's vectors give way to their gradients; returns this lane's share of Σ gradient ·
  /// bias.
  __device__ float finish(const Layout& l, const Geometry& g, float factor, float* lines) const {
    float with_bias = 0.0F;
    for_entries(l, g, lines, [&](float& place, float sum) {
      with_bias += sum * place;
      place = sum * factor;
    });
    return with_bias;
  }

 private:
  __device__ void see(const Plan& plan, int slot) {
    const Lane lane;
    const auto pair = [](bool first, bool second) {
      return (first ? kOne : 0u) | (second ? kOne << 16 : 0u);
    };
#pragma unroll
    for (int eight = 0; eight < 2; ++eight) {
      const int first = slot + 8 * eight, place = 2 * lane.t;
      const int column = plan.layout.column_of(first + place);
#pragma unroll
      for (int i = 0; i < 2; ++i)
        x[i].r[eight] = pair(column == i * 8 + lane.g, column + 1 == i * 8 + lane.g);
      ones.r[eight] = pair(on_grid(plan, first, place), on_grid(plan, first, place + 1));
    }
  }

  /// use(place in the warp's lines, sum) for all that this lane holds.
  template <class Use>
  __device__ void for_entries(const Layout& l, const Geometry& g, float* lines, Use use) const {
    const Lane lane;
    const auto for_eight = [&](const float(&sums)[4], int first, int entries, float* axis) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int entry = first + 2 * lane.t + e % 2;
        if (entry < entries) use(axis[(lane.g + e / 2 * 8) * l.line_pitch + entry], sums[e]);
      }
    };
#pragma unroll
    for (int i = 0; i < 2; ++i) for_eight(along_x[i], i * 8, g.cols, lines);
#pragma unroll
    for (int i = 0; i < Eights; ++i) for_eight(along_y[i], i * 8, g.rows, lines + l.row_width);
  }
};

/// The distance form, once the whole square is known: with ω = (gradient both ways round) /
/// distance, dU_i = Σ_n ω_in (u_i − u_n), here u_i·Σω − ω·U with the same rounded ω in both.
/// Returns this lane's share of Σ gradient · bias, which is half of Σ ω · distance².
template <class T>
__device__ float distance_gradients(const Plan& plan, int own_row,
                                    const CenteredVectors<T>& centered, const Padded<T>& square,
                                    float factor, float* lines) {
  constexpr std::uint32_t kOne = std::is_same_v<T, Bf16> ? 0x3f803f80u : 0x3c003c00u;
  const auto& l = plan.layout;
  const Lane lane;
  const bool queries[2] = {on_grid(plan, own_row, lane.g), on_grid(plan, own_row + 8, lane.g)};
  CenteredRows<T> rows;
  rows.begin(centered, own_row);
  const std::uint32_t there = square.a(own_row), back = square.b_rows(0) + own_row * 2;
  const std::uint32_t others = centered.tile.a(0);
  float with_bias = 0.0F;
  float sum[2][2][4] = {}, more[2][4] = {};  // by axis; y beyond 16
  float weight[2][4] = {};                   // Σω, the same in every column
#pragma unroll 1
  for (int slot = 0; slot < l.grid_slots; slot += 16) {
    FragmentA<T> one_way, other_way;
    ldmatrix_x4(one_way.r, there + slot * 2);
    ldmatrix_x4_trans(other_way.r, back + slot * square.pitch);
    float both[2][4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 a = unpack<T>(one_way.r[i]), b = unpack<T>(other_way.r[i]);
      const int key = slot + 8 * (i / 2);
      both[i / 2][i % 2 * 2] = queries[i % 2] && on_grid(plan, key, 2 * lane.t) ? a.x + b.x : 0.0F;
      both[i / 2][i % 2 * 2 + 1] =
          queries[i % 2] && on_grid(plan, key, 2 * lane.t + 1) ? a.y + b.y : 0.0F;
    }
#pragma unroll
    for (int axis = 0; axis < 2; ++axis) {
      float d[2][4];
      rows.squared(d, centered, axis, slot);
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        float& square_distance = d[e / 4][e % 4];
        const float omega = both[e / 4][e % 4] * fast_inverse_root(square_distance);
        with_bias = fmaf(omega, square_distance, with_bias);
        square_distance = omega;
      }
      auto omega = as_a<T>(d[0], d[1]);
      for (auto& pair : omega.r) pair = within_range<T>(pair);
      mma(weight[axis], omega, FragmentB<T>{kOne, kOne});
      std::uint32_t b[4];
      ldmatrix_x4_trans(b, others + slot * centered.tile.pitch + 32 * axis);
      mma_pair<T>(sum[axis][0], sum[axis][1], omega, b);
      if (axis == 1 && centered.long_y) {
        ldmatrix_x4_trans(b, others + slot * centered.tile.pitch + 64);
        mma_pair<T>(more[0], more[1], omega, b);
      }
    }
  }
#pragma unroll
  for (int part = 0; part < 3; ++part) {
    if (part == 2 && !centered.long_y) break;
    const int axis = part > 0;
    const int first = part == 2 ? 16 : 0;
    const int entries = axis ? plan.geometry.rows : plan.geometry.cols;
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      const int entry = first + e / 4 * 8 + 2 * lane.t + e % 2, row = lane.g + e % 4 / 2 * 8;
      if (entry >= entries) continue;
      const float u = widen(centered.tile.row(own_row + row)[axis * 16 + entry]);
      const float others_share = part == 2 ? more[e / 4][e % 4] : sum[axis][e / 4][e % 4];
      lines[row * l.line_pitch + axis * l.row_width + entry] =
          factor * (weight[axis][e % 4 / 2 * 2] * u - others_share);
    }
  }
  return 0.5F * with_bias;
}

}  // namespace sape2::kernels::cuda::head
