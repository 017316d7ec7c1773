#pragma once

#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/arch/pdl.cuh"
#include "kernels/cuda/arch/tma.cuh"
#include "kernels/cuda/arch/wgmma.cuh"
#include "kernels/cuda/attention_sm90/direct/bias.cuh"
#include "kernels/cuda/attention_sm90/direct/square_bias.cuh"
#include "kernels/cuda/attention_sm90/kernels.h"
#include "kernels/cuda/attention_sm90/kv_pipeline.cuh"
#include "kernels/cuda/attention_sm90/lazy_softmax.cuh"
#include "kernels/cuda/attention_sm90/tiles.cuh"
#include "kernels/cuda/attention_sm90/tiling.h"
#include "kernels/cuda/common/online_softmax.cuh"
#include "kernels/cuda/common/ref_if.cuh"
#include "kernels/cuda/common/tile.cuh"
#include "kernels/cuda/host/attention_calls.h"
#include "kernels/cuda/host/launch.h"
#include "kernels/cuda/host/params.h"

/// Shared memory of attention forward on Hopper (forward.cuh), what comes into it, and the steps of
/// a tile.
namespace sape2::kernels::cuda::sm90 {

template <BiasForm Form>
struct ForwardSmem {
  static constexpr int kKStages = 2, kVStages = 2;
  static constexpr int kKvBytes = (kKStages + kVStages) * kTileBytes;
  static constexpr int kBarriers = kKStages + kVStages + 1;
  // Places from the beginning; panels, whose number is known at run time only, come last.
  static constexpr int kKvStages = kTileBytes, kFull = kKvStages + kKvBytes;
  static constexpr int kPanels = round_up(kFull + kBarriers * 8, kSharedAlignment);
  __host__ __device__ static int y_panels(const KeyTiling& columns) {
    return Form == BiasForm::direct ? (columns.down + 63) / 64 : 0;
  }
  __host__ __device__ static int bytes(const KeyTiling& columns) {
    return kPanels + y_panels(columns) * kTileBytes;
  }
};

/// Weights from scores and what is added to logits · log2(e), by rows, n8 fragment after n8
/// fragment: `Terms`.
struct ScoreSoftmax : LazySoftmax {
  float scale;  // from score to logit · log2(e)

  __device__ explicit ScoreSoftmax(float s) : scale(s) {}

  template <int N8, class Terms>
  __device__ void weigh_tile(float (&weights)[N8][4], const float (&scores)[N8][4], Terms terms) {
    begin_tile();
#pragma unroll
    for (int n8 = 0; n8 < N8; ++n8) {
      float base[2] = {shift[0], shift[1]};
      if constexpr (!std::is_same_v<Terms, NoTerms>) {
        terms.next(base);
        base[0] += shift[0];
        base[1] += shift[1];
      }
#pragma unroll
      for (int e = 0; e < 4; ++e)
        weights[n8][e] = weigh(fmaf(scores[n8][e], scale, base[e / 2]), e);
    }
  }
  template <int N8, class Terms>
  __device__ void follow(const float (&scores)[N8][4], Terms terms, float (&out)[8][4]) {
    float greatest[2] = {-INFINITY, -INFINITY};
#pragma unroll
    for (int n8 = 0; n8 < N8; ++n8) {
      float base[2];
      terms.next(base);
#pragma unroll
      for (int e = 0; e < 4; ++e)
        greatest[e / 2] = fmaxf(greatest[e / 2], fmaf(scores[n8][e], scale, base[e / 2]));
    }
    move(greatest, out);
  }
};

/// What tiles of keys are: grid rows, or squares (SquareBias). Unless any may be, tiles of the grid
/// are all there is, none of them lacks a token, and from bias to scores is a number of type T.
enum class KeyTiles { any_rows, whole_rows, whole_squares };

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/// What lies where in it.
template <BiasForm Form>
struct ForwardSmemView {
  using Smem = ForwardSmem<Form>;
  static_assert(Smem::kKvStages % kSharedAlignment == 0 && Smem::kFull % alignof(Mbarrier) == 0);
  unsigned char* memory;

  __device__ unsigned char* rows() const { return memory; }
  __device__ unsigned char* kv_stages() const { return memory + Smem::kKvStages; }
  __device__ unsigned char* panels() const { return memory + Smem::kPanels; }
  __device__ Mbarrier* full() const { return reinterpret_cast<Mbarrier*>(memory + Smem::kFull); }
  __device__ Mbarrier* rows_full() const { return full() + Smem::kBarriers - 1; }
};

/// How a block begins to fill its shared memory.
template <class T, BiasForm Form, int RowN8, KeyTiles Tiles>
struct ForwardLoads {
  using Smem = ForwardSmem<Form>;
  static constexpr bool kDirect = Form == BiasForm::direct;
  static constexpr bool kInSquares = Tiles == KeyTiles::whole_squares;
  static constexpr bool kByRows = kDirect && !kInSquares;
  using Keys = KvPipeline<T, Form, Smem::kKStages, Smem::kVStages, ForwardParams,
                          Tiles == KeyTiles::whole_rows ? kTileRows<RowN8> : 0>;
  const ForwardParams& params;
  const KeyTiling& columns;
  const BlockCoord& block;
  const Keys& keys;
  ForwardSmemView<Form> smem;
  int first_row, y_panels, panel_bytes;

  /// What threads write themselves, before a barrier.
  __device__ void prepare() const {
    if (columns.part_width * columns.rows_per_tile < columns.width)
      clear_shared(smem.kv_stages(), Smem::kKvBytes);
    if constexpr (kInSquares)
      SquareBias<T>::write_matrix(smem.panels() + panel_bytes, bias_ratio(params.base, block.head));
    if (threadIdx.x == 0) {
      prefetch_tensormaps(params.q, params.k, params.v);
      if constexpr (kByRows) prefetch_tensormaps(params.y);
      if constexpr (kInSquares) prefetch_tensormaps(params.x_eights, params.y_eights);
      for (int i = 0; i < Smem::kBarriers; ++i) mbarrier_init(smem.full() + i);
    }
  }
  __device__ void tokens() const {
    if (threadIdx.x != 0) return;
    mbarrier_expect_tx(smem.rows_full(), kTileBytes + panel_bytes);
    // What is needed first comes first: all blocks begin at once, and memory takes a while.
    tma_load(smem.rows(), params.q, block.tokens(first_row), smem.rows_full());
    keys.load_k(0);
    keys.load_v(0);
    if constexpr (!kDirect) keys.load_following();
  }
  __device__ void vectors() const {
    if (threadIdx.x != 0) return;
    if constexpr (kInSquares) {
      tma_load(smem.panels(), params.x_eights, block.vectors(first_row), smem.rows_full());
      tma_load(smem.panels() + SquarePanels::x_bytes(columns), params.y_eights,
               block.vectors(first_row), smem.rows_full());
    } else {
      for (int panel = 0; panel < y_panels; ++panel)
        tma_load(smem.panels() + panel * kTileBytes, params.y, block.vectors(first_row, panel * 64),
                 smem.rows_full());
    }
  }
};

/// The steps of a tile, on numbers that the kernel has in registers.
template <class T, BiasForm Form, int RowN8, KeyTiles Tiles>
struct ForwardTile {
  using Loads = ForwardLoads<T, Form, RowN8, Tiles>;
  static constexpr bool kDirect = Loads::kDirect, kInSquares = Loads::kInSquares;
  static constexpr bool kByRows = Loads::kByRows, kWholeRows = Tiles == KeyTiles::whole_rows;
  static constexpr int kN8 = kByRows ? kTileN8<RowN8> : 8;
  using Direct = DirectBias<T, RowN8, true, kWholeRows>;
  const AttentionParams& p;
  const BlockCoord& block;
  const KeyTiling& columns;
  const typename Loads::Keys& keys;
  unsigned char* const& rows;
  const int &own_row, &warp;
  RefIf<const SquareBias<T>, kInSquares> square_bias;
  RefIf<Direct, kByRows> direct;
  RefIf<const RowsY<T, RowN8>, kByRows> rows_y;
  RefIf<const float, kByRows> y_factor;
  ColumnMask<kN8>& mask;
  ScoreSoftmax& softmax;
  float (&scores)[kN8][4], (&weights)[kN8][4], (&out)[8][4];
  FragmentA<T> (&fragments)[kN8 / 2];
  KeyTiling::Place& at;

  __device__ auto read_terms() const {
    if constexpr (kByRows) {
      return TermsY<T, RowN8>(rows_y.to, columns, at, y_factor.to);
    } else {
      return NoTerms();
    }
  }
  /// Scores start from the bias, where there is one.
  __device__ void prepare_scores() const {
    fence_accumulators(scores);
    if constexpr (kByRows) {
      if constexpr (!kWholeRows)
        if (at.in_grid && at.first_row == 0) direct->begin_part(p, block, own_row, at.part);
      direct->start(scores, at);
      fence_accumulators(scores);
    }
  }
  __device__ void start_scores(int tile) const {
    wgmma_fence();
    if constexpr (kInSquares) square_bias->start(scores, at);
    start_wgmma_ss<T, 4, kDirect>(scores, smem_descriptor(shared_address(rows)),
                                  keys.k_matrix(tile));
    wgmma_commit();
  }
  template <class Terms>
  __device__ void weigh(int tile, const Terms& terms) const {
    fence_accumulators(scores);
    if constexpr (!kWholeRows && !kInSquares)
      if (!columns.whole)
        mask.apply(scores, columns, kDirect ? at : columns.place(tile), -INFINITY);
    softmax.weigh_tile(weights, scores, terms);
    fence_accumulators(weights);
  }
  template <bool First>
  __device__ void finish_weights() const {
    if (First ? softmax.begins_badly() : softmax.overflows()) {
      softmax.follow(scores, read_terms(), out);
      softmax.weigh_tile(weights, scores, read_terms());
    }
    softmax.end_tile();
#pragma unroll
    for (int k = 0; k < kN8 / 2; ++k) fragments[k] = as_a<T>(weights[2 * k], weights[2 * k + 1]);
  }
  __device__ void first_tile() const {
    prepare_scores();
    keys.wait_k(0);
    start_scores(0);
    if constexpr (kDirect)
      if (threadIdx.x == 0) keys.load_following();
    wgmma_wait<0>();
    weigh(0, read_terms());
    finish_weights<true>();
    __syncthreads();
  }
  /// Copies into what was free when the last tile was done, by threads that would only wait now.
  __device__ void load_following(int tile) const {
    if (warp == 0) {
      auto next = at;
      if constexpr (kDirect) next_tile<RowN8, kWholeRows>(columns, next);
      if (elect_one()) keys.load_k(tile + 1, next);
    } else if (warp == 1) {
      if (tile > 1 && elect_one()) keys.load_v(tile, at);
    }
  }
  /// The scores of a tile are made together with the last tile's part of the result, which goes on
  /// while they become weights.
  __device__ void attend(int tile) const {
    if constexpr (kDirect) next_tile<RowN8, kWholeRows>(columns, at);
    prepare_scores();
    const auto terms = read_terms();  // before products start, beside which memory answers slowly
    keys.wait_k(tile);
    keys.wait_v(tile - 1);
    fence_accumulators(out);
    start_scores(tile);
    start_wgmma_rs<T>(out, fragments, keys.v_matrix(tile - 1));
    wgmma_commit();
    load_following(tile);
    wgmma_wait<1>();
    weigh(tile, terms);
    if constexpr (kDirect) keep_instruction_order();
    wgmma_wait<0>();
    fence_accumulators(out);
    fence_operands(fragments);
    finish_weights<false>();
    __syncthreads();
  }
  /// The last tile's part of the result.
  __device__ void finish() const {
    keys.wait_v(columns.tiles - 1);
    fence_accumulators(out);
    wgmma_fence();
    start_wgmma_rs<T>(out, fragments, keys.v_matrix(columns.tiles - 1));
    wgmma_commit_and_wait();
    fence_accumulators(out);
  }
  /// Weights become relative to their sums, which backward needs, too.
  __device__ void normalise() const {
    const Lane lane;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int token = own_row + 8 * half;
      const float whole = row_sum(softmax.sum[half]), by = 1.0F / whole;
#pragma unroll
      for (int i = 0; i < 16; ++i) out[i / 2][2 * half + i % 2] *= by;
      if (lane.t == 0 && p.softmax != nullptr && token < p.geometry.tokens)
        p.softmax[block.batch_head * p.geometry.tokens + token] = {softmax.top[half] * kLn2, whole};
    }
  }
};

#endif

}  // namespace sape2::kernels::cuda::sm90
