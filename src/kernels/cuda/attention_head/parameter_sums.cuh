#pragma once

#include "kernels/cuda/arch/ldmatrix.cuh"
#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/attention_head/kernels.h"
#include "kernels/cuda/attention_head/layout.h"
#include "kernels/cuda/attention_head/lines.cuh"
#include "kernels/cuda/attention_head/logits.cuh"
#include "kernels/cuda/attention_head/plan.cuh"
#include "kernels/cuda/attention_head/products.cuh"
#include "kernels/cuda/common/block_sum.cuh"
#include "kernels/cuda/common/tile.cuh"

/// What is summed over a block's images: gradients of tables, gates and gain.
namespace sape2::kernels::cuda::head {

/// This block's partial sums of the tables' gradients: binsᵀ · source, sixteen table rows and
/// sixteen channels a round. `source`: where the tokens' tile begins.
template <class T, int Size, GridKind Grid>
__device__ void add_table_gradients(const BackwardParams& p, const Plan& plan, int set, bool first,
                                    const Padded<T>& bins, const Products<T, Size, Grid>& products,
                                    std::uint32_t source) {
  const auto& l = plan.layout;
  const auto& axes = p.forward.stage.axes;
  const int head_size = plan.geometry.head_size;
  const Lane lane;
  const std::uint32_t turned = bins.b_rows(0);
  float* const partial = p.dtables + (std::int64_t(blockIdx.x) * plan.sets + set) *
                                         (axes[0].positions + axes[1].positions) * head_size;
  // The four warps of a warpgroup have 64 table rows and the same channels.
  constexpr int kAcross = Size / 16, kDown = Products<T, Size, Grid>::kByWarpgroups ? 4 : 1;
  const int units = round_up(l.table_rows / 16, kDown) * kAcross;
#pragma unroll 1
  for (int unit = threadIdx.x / 32; unit < units; unit += blockDim.x / 32) {
    const int row = (unit / kDown / kAcross * kDown + unit % kDown) * 16;
    const int column = unit / kDown % kAcross;
    const int axis = row >= l.second_table;
    const int bin = row - axis * l.second_table + lane.g, rows = axes[axis].positions;
    const int channel = column * 16 + 2 * lane.t;
    float* const to = partial + (axis * axes[0].positions + bin) * head_size + channel;
    bool used[8];
    float before[8];
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      const int down = e % 4 / 2 * 8, across = e / 4 * 8 + e % 2;
      used[e] = bin + down < rows && channel + across < head_size;
      before[e] = used[e] && !first ? to[down * head_size + across] : 0.0F;
    }
    float c[2][4] = {};
    products.add_columns(
        c, source, round_up(l.grid_slots, 16),
        [&](std::uint32_t(&a)[4], int slot) {
          if (row < l.table_rows) ldmatrix_x4_trans(a, turned + slot * bins.pitch + row * 2);
        },
        column);
#pragma unroll
    for (int e = 0; e < 8; ++e)
      if (used[e]) to[e % 4 / 2 * 8 * head_size + e / 4 * 8 + e % 2] = before[e] + c[e / 4][e % 4];
  }
}

/// This block's sums of what gain and gates get, from every thread's shares. `with_bias`: Σ logit's
/// gradient · bias; `scratch`: of block_sums.
__device__ inline void put_block_sums(const BackwardParams& p, float with_bias,
                                      const GateSums& gates, float* scratch) {
  const auto& attention = p.forward.attention;
  const float sum = block_sums(
      {with_bias * (attention.inside ? attention.scale : 1.0F), gates.scale, gates.offset},
      scratch);
  float* const to = threadIdx.x == 0   ? p.dgain
                    : threadIdx.x == 1 ? p.dgate_scale
                    : threadIdx.x == 2 ? p.dgate_offset
                                       : nullptr;
  if (to != nullptr) to[blockIdx.x] = sum;
}

}  // namespace sape2::kernels::cuda::head
