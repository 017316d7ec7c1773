#pragma once

#include "kernels/cuda/arch/ldmatrix.cuh"
#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/arch/pdl.cuh"
#include "kernels/cuda/arch/tma.cuh"
#include "kernels/cuda/arch/wgmma.cuh"
#include "kernels/cuda/attention_sm90/direct/bias.cuh"
#include "kernels/cuda/attention_sm90/direct/bias_gradient.cuh"
#include "kernels/cuda/attention_sm90/direct/bwd_dq_loads.cuh"
#include "kernels/cuda/attention_sm90/direct/short_bias.cuh"
#include "kernels/cuda/attention_sm90/kernels.h"
#include "kernels/cuda/attention_sm90/kv_pipeline.cuh"
#include "kernels/cuda/attention_sm90/tiles.cuh"
#include "kernels/cuda/attention_sm90/tiling.h"
#include "kernels/cuda/common/block_sum.cuh"
#include "kernels/cuda/common/online_softmax.cuh"
#include "kernels/cuda/common/ref_if.cuh"
#include "kernels/cuda/common/softmax_delta.cuh"
#include "kernels/cuda/common/tile.cuh"
#include "kernels/cuda/host/launch.h"
#include "kernels/cuda/host/params.h"

/// The steps of the dq pass (bwd_dq.cuh).
namespace sape2::kernels::cuda::sm90 {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/// What forward left of the softmax of this lane's rows, and dout · out of the block's.
template <class T>
struct OwnRows {
  SoftmaxRow softmax[2] = {{INFINITY, 1.0F}, {INFINITY, 1.0F}};
  TileDelta<T> own_delta;
  int row;  // and row + 8

  __device__ OwnRows(const BackwardParams& params, const BlockCoord& block, int first_row,
                     int warp_row)
      : own_delta(params.base, block.image, block.head, first_row), row(first_row + warp_row) {
    const AttentionParams& p = params.base.forward;
    const auto& g = p.geometry;
#pragma unroll
    for (int half = 0; half < 2; ++half)
      if (row + 8 * half < g.tokens)
        softmax[half] = p.softmax[block.batch_head * g.tokens + row + 8 * half];
  }
  /// lse (base 2) and delta of the rows, for this pass and the next.
  __device__ void write_lse_delta(const BackwardParams& params, const BlockCoord& block,
                                  const Tile<T>& douts, float* deltas, int warp_row,
                                  float (&shift)[2], float (&delta)[2]) const {
    own_delta.write(douts, deltas);
    __syncthreads();
    auto* const to = reinterpret_cast<float2*>(params.base.delta) +
                     block.batch_head * params.base.forward.geometry.padded_tokens + row;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      shift[half] = softmax[half].maximum * kLog2E + log2_approx(softmax[half].sum);
      delta[half] = deltas[warp_row + 8 * half];
      if (threadIdx.x % 4 == 0) to[8 * half] = make_float2(shift[half], delta[half]);
    }
  }
};

/// The steps of a tile, on numbers that the kernel has in registers.
template <class T, BiasForm Form, int RowN8, bool Whole>
struct BwdDqTile {
  using Loads = BwdDqLoads<T, Form, RowN8, Whole>;
  using Short = typename Loads::Short;
  static constexpr bool kDirect = Form == BiasForm::direct, kShort = Loads::kShort;
  static constexpr int kN8 = kDirect ? kTileN8<RowN8> : 8;
  // In long rows of whole grids half of the weights are made before products are waited for that
  // they do not need; elsewhere the compiler may choose.
  static constexpr bool kInOrder = Whole && !kShort;
  static constexpr int kAtOnce = kInOrder ? kN8 / 2 : kN8;
  RefIf<const Loads, kShort> load;
  const KeyTiling& columns;
  const typename Loads::Keys& keys;
  const Tile<T>&queries, &douts;
  RefIf<const DirectBias<T, RowN8, false, Whole>, kDirect && !kShort> direct;
  RefIf<const RowsY<T, RowN8>, kDirect> rows_y;
  RefIf<DirectBiasGradient<T, RowN8, Whole>, kDirect> direct_gradient;
  float (&weight)[kN8][4], (&gradient)[kN8][4];
  float (&dq)[kDirect ? 9 : 8][4];
  FragmentA<T> (&fragments)[kN8 / 2];
  KeyTiling::Place& at;
  float (&shift)[2], (&delta)[2];  // lse (base 2) and delta of the lane's rows
  const float& scale;              // from score to logit · log2(e)
  ColumnMask<kN8>& mask;
  const int& warp;

  /// Scores begin from the bias.
  __device__ void prepare_scores(int tile) const {
    fence_accumulators(weight);
    if constexpr (kDirect && !kShort) {
      direct->start(weight, at);
      fence_accumulators(weight);
    }
    keys.wait_k(tile);
  }
  __device__ void start_scores(int tile) const {
    wgmma_fence();
    if constexpr (kShort) Short::start(weight, load->panels_x, load->matrix);
    start_wgmma_ss<T, 4, kDirect>(weight, smem_descriptor(shared_address(queries.data)),
                                  keys.k_matrix(tile));
    wgmma_commit();
  }
  __device__ void start_dweights(int tile) const {
    start_wgmma_ss<T>(gradient, smem_descriptor(shared_address(douts.data)), keys.v_matrix(tile));
  }
  /// Read before products start: beside those memory answers slowly.
  __device__ auto read_terms() const {
    if constexpr (kDirect) {
      return TermsY<T, RowN8>(rows_y.to, columns, at, direct_gradient->factor * kLog2E);
    } else {
      return NoTerms();
    }
  }
  /// Scores become weights, `first` to `last` of the n8 fragments.
  template <class Terms>
  __device__ void weigh_n8s(int first, int last, Terms& terms) const {
#pragma unroll
    for (int n8 = first; n8 < last; ++n8) {
      float base[2] = {-shift[0], -shift[1]};
      if constexpr (kDirect) {
        terms.next(base);
        base[0] -= shift[0];
        base[1] -= shift[1];
      }
#pragma unroll
      for (int e = 0; e < 4; ++e)
        weight[n8][e] = power_of_2(fmaf(weight[n8][e], scale, base[e / 2]));
    }
  }
  /// What becomes of a tile's scores while its gradients, and dq of the tile before, are in work.
  template <class Terms>
  __device__ void weigh(int tile, Terms& terms) const {
    fence_accumulators(weight);
    weigh_n8s(0, kAtOnce, terms);
    if constexpr (!Whole)
      if (!columns.whole) mask.apply(weight, columns, kDirect ? at : columns.place(tile), 0.0F);
    fence_accumulators(weight);
    if constexpr (kInOrder) keep_instruction_order();
    wgmma_wait<0>();
    weigh_n8s(kAtOnce, kN8, terms);
  }
  /// The logits' gradients, and their sums along x.
  __device__ void make_fragments() const {
    fence_accumulators(gradient);
    fence_accumulators(dq);
#pragma unroll
    for (int k = 0; k < kN8 / 2; ++k) {
#pragma unroll
      for (int n8 = 2 * k; n8 < 2 * k + 2; ++n8)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          gradient[n8][e] = weight[n8][e] * (gradient[n8][e] - delta[e / 2]);
      fragments[k] = as_a<T>(gradient[2 * k], gradient[2 * k + 1]);
      // Prefix tokens come when nobody asks for the sums any more.
      if constexpr (kDirect)
#pragma unroll
        for (int n8 = 2 * k; n8 < 2 * k + 2; ++n8) direct_gradient->add_x(gradient[n8], n8);
    }
    if constexpr (kDirect && !Whole)
      if (at.in_grid && at.first_row + columns.rows_per_tile >= columns.down)
        direct_gradient->end_part(at.part);
  }
  /// dq += logits' gradients·k, and their sums along y.
  __device__ void start_sums(int tile, const KeyTiling::Place& place) const {
    if constexpr (kDirect)
      if (Whole || place.in_grid)
        return direct_gradient->start_sums(dq, fragments, keys.k(tile), place);
    if constexpr (!Whole) start_wgmma_rs<T>(dq, fragments, keys.k(tile));
  }
  __device__ void end_sums(const KeyTiling::Place& place) const {
    fence_accumulators(dq);
    if constexpr (kDirect) direct_gradient->end_rows(dq[8], place, rows_y.to);
  }
  /// Copies into what was free when the last tile was done, by threads that would only wait now.
  __device__ void load_following(int tile) const {
    using Smem = BwdDqSmem<Form>;
    if (warp == 0) {
      if (tile > 1 && elect_one()) keys.load_k(tile - 2 + Smem::kKStages);
    } else if (warp == 1) {
      if (elect_one()) keys.load_v(tile - 1 + Smem::kVStages);
    }
  }
  /// A tile's scores and weights' gradients are made together with the last tile's part of dq.
  __device__ void one_tile(int tile) const {
    const auto before = at;
    if constexpr (kDirect) next_tile<RowN8, Whole>(columns, at);
    prepare_scores(tile);
    keys.wait_v(tile);
    auto terms = read_terms();
    fence_accumulators(dq);
    start_scores(tile);
    start_sums(tile - 1, before);
    start_dweights(tile);
    wgmma_commit();
    load_following(tile);
    wgmma_wait<1>();
    weigh(tile, terms);
    fence_operands(fragments);
    make_fragments();
    end_sums(before);
    __syncthreads();
  }
};

#endif

}  // namespace sape2::kernels::cuda::sm90
