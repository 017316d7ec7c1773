#pragma once

#include "kernels/cuda/arch/ldmatrix.cuh"
#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/arch/pdl.cuh"
#include "kernels/cuda/attention_head/distance_bias.cuh"
#include "kernels/cuda/attention_head/forward.cuh"
#include "kernels/cuda/attention_head/kernels.h"
#include "kernels/cuda/attention_head/layout.h"
#include "kernels/cuda/attention_head/lines.cuh"
#include "kernels/cuda/attention_head/lines_backward.cuh"
#include "kernels/cuda/attention_head/lines_saved.cuh"
#include "kernels/cuda/attention_head/lines_specialized.cuh"
#include "kernels/cuda/attention_head/logits.cuh"
#include "kernels/cuda/attention_head/parameter_sums.cuh"
#include "kernels/cuda/attention_head/plan.cuh"
#include "kernels/cuda/attention_head/products.cuh"
#include "kernels/cuda/attention_head/slots.cuh"
#include "kernels/cuda/attention_head/split_barrier.cuh"
#include "kernels/cuda/attention_head/square.cuh"
#include "kernels/cuda/attention_head/vector_gradients.cuh"
#include "kernels/cuda/common/online_softmax.cuh"
#include "kernels/cuda/common/tile.cuh"
#include "kernels/cuda/host/device.h"
#include "kernels/cuda/host/params.h"

/// The steps of attention backward, one block per head (backward.cuh).
namespace sape2::kernels::cuda::head {

/// What a block copies of an image, and writes of its results.
template <class T, int Size, GridKind Grid>
struct BackwardLoads : HeadTokens<T, Size, Grid> {
  static constexpr bool kAlone = is_alone(Grid, Size);
  using Tokens = HeadTokens<T, Size, Grid>;
  using Tokens::own_row, Tokens::head, Tokens::works, Tokens::copies;
  using Tokens::p, Tokens::plan, Tokens::l, Tokens::g, Tokens::shared, Tokens::tokens;
  const BackwardParams& params;

  /// As part of what an image needs first.
  __device__ void start(int place, const ConstView& view, int image) const {
    if (works && (!kAlone || image < p.images))
      copies().start(shared + place, head_of<T>(view, image, head), g);
  }
  __device__ void load_tables_once(bool with_tables) const {
    if (plan.has_tables && with_tables) load_tables<T, Size>(p, plan, head, shared + l.tables);
  }
  __device__ void load_image(int image, bool with_tables) const {
    start(l.q, p.attention.q, image);
    start(l.k, p.attention.k, image);
    cp_async_commit();
    // Where dout is needed later, tables had better not come behind it.
    if constexpr (kAlone) load_tables_once(with_tables);
    start(l.dout, params.dout, image);
    cp_async_commit();
    if (!l.reload) start(l.v, p.attention.v, image);
    cp_async_commit();
    if constexpr (!kAlone) load_tables_once(with_tables);
  }
  /// By itself, later.
  __device__ void load(int place, const ConstView& view, int image) const {
    if (works) copies().start(shared + place, head_of<T>(view, image, head), g);
    cp_async_commit();
  }
};

/// The steps of an image.
template <class T, int Size, BiasForm Form, GridKind Grid>
struct BackwardTile {
  static constexpr bool kDirect = Form == BiasForm::direct, kDistance = kIsDistance<Form>;
  static constexpr bool kSpecialized = Grid != GridKind::any, kAlone = is_alone(Grid, Size);
  static constexpr int kSets = kVectorSets<Form>, kN8 = Size / 8, kRow = kRowBytes<Size>;
  static constexpr bool kAhead = is_exact(Grid) || Form == BiasForm::none;
  using SquareProducts = Products<T, Size, Grid, true, kAhead>;
  using Line = SpecializedScratchLine<kSpecialized ? longest_line(Grid) : 1>;
  const BackwardLoads<T, Size, Grid>& load;
  const SquareProducts& products;
  const LdmatrixOffsets<Size>& offsets;
  const std::uint32_t& base;
  const Padded<T>&square, &logits;
  const bool& two_squares;
  float* const& deltas;
  const ScratchLine<kSets>& scratch_line;
  SplitBarrier<false>& all;
  const float& factor;
  float& with_bias;
  GateSums& gate_sums;

  __device__ Padded<T> bins(int set) const {
    const auto& l = load.l;
    return {load.shared + l.bins + set * l.slots * l.bins_pitch, l.bins_pitch};
  }
  __device__ auto all_bins() const {
    return [this](int set) { return bins(set); };
  }
  /// The vectors of the sixteen slots from `slot / 16 * 16` on, as far as forward's stage 1 makes
  /// them again.
  __device__ float* vectors_of(int slot) const {
    const auto& l = load.l;
    const int first = slot / 16 * 16;
    float* const warps =
        kDistance ? reinterpret_cast<float*>(load.shared + l.vectors + first * l.square_pitch)
                  : reinterpret_cast<float*>(load.shared + l.lines) + first * l.line_pitch;
    return warps + (slot - first) * l.line_pitch;
  }
  /// dout · out; waits for dout, and for v if `with_v`.
  __device__ void make_deltas(int image, bool with_v) const {
    const RowsDelta<T, Size, Grid> out_rows(load.copies(),
                                            head_of<T>(load.params.out, image, load.head), load.g);
    if (with_v) {
      products.template finish_copies<0>();
    } else {
      products.template finish_copies<1>();
    }
    __syncthreads();
    if (load.works)
      out_rows.finish(load.shared + load.l.dout + load.own_row * kRow, deltas + load.own_row);
  }
  /// For q and k, and for what else may come now without a wait of its own.
  __device__ void wait_for_image(int image) const {
    if constexpr (kAlone) {
      products.template finish_copies<2>();
      __syncthreads();
    } else {
      // Without a wait for everybody later on, v must be there too.
      make_deltas(image, two_squares && !kDistance);
    }
  }
  /// Stage 1 once more.
  __device__ void make_own_vectors(const RowsAsA<T, Size>& own_q, int image) const {
    const auto& l = load.l;
    const std::uint32_t keys = base + l.k;
    const RoundingToo<T, ScratchLine<kSets>> to_save{
        scratch_line, !kSpecialized && saves_stage1(load.p.layout.grid, Form, load.g.head_size)};
    make_vectors<Form, Grid>(
        load.p, load.plan, load.own_row, products, load.head,
        std::int64_t(image) * load.g.heads + load.head, own_q,
        {base + l.q, keys, keys + offsets.b_rows, at_slots<Size>(keys + offsets.a, load.own_row),
         base + l.tables},
        vectors_of(load.own_row), reinterpret_cast<float*>(square.row(load.own_row)), to_save,
        [this](int slot) { return vectors_of(slot); }, all);
  }
  /// The distance form's vectors, rounded where all warps can read them.
  __device__ void center_vectors(CenteredRows<T> (&rows)[kSets]) const {
    const auto& l = load.l;
#pragma unroll
    for (int set = 0; set < kSets; ++set)
      if (load.works)
        CenteredVectors<T>(l, load.shared, set).make(l, load.g, load.own_row, [&](int slot) {
          return vectors_of(slot) + set * 16 * l.line_pitch;
        });
    if (two_squares) products.template finish_copies<0>();
    __syncthreads();
#pragma unroll
    for (int set = 0; set < kSets; ++set)
      rows[set].begin(CenteredVectors<T>(l, load.shared, set), load.own_row);
  }
  __device__ void make_weights(const QueryRows& rows, int image, int v_at) const {
    const auto& l = load.l;
    const Plan& plan = load.plan;
    const int own_row = load.own_row;
    const RowsAsA<T, Size> own_q(at_slots<Size>(base + l.q + offsets.a, own_row));
    if constexpr (Form != BiasForm::none) make_own_vectors(own_q, image);
    // Warps without slots look at others' vectors.
    if (kDistance || l.reload || (SquareProducts::kByWarpgroups && l.warps % 4 != 0))
      __syncthreads();
    if (l.reload) load.load(v_at, load.p.attention.v, image);
    if constexpr (kAlone) load.copies().fetch(head_of<T>(load.params.out, image, load.head));
    [[maybe_unused]] CenteredRows<T> centered_rows[kSets];
    if constexpr (kDistance) center_vectors(centered_rows);
    const Lane lane;
    [[maybe_unused]] const bool has_bias[2] = {on_grid(plan, own_row, lane.g),
                                               on_grid(plan, own_row + 8, lane.g)};
    const Logits<T, Form> bias(load.p, plan, load.head, vectors_of(own_row), l.line_pitch, kLog2E,
                               rows.less);
    const auto weigh = [&](int slot, float(&c)[2][4]) {
      if (!load.works) return;
      const auto beside = bias.logits_beside(c, plan, slot);
      bias.make(c, plan, slot);
      if constexpr (kDistance) {
#pragma unroll
        for (int set = 0; set < kSets; ++set)
          bias.add_distances(c, plan, CenteredVectors<T>(l, load.shared, set), centered_rows[set],
                             has_bias, slot);
      }
      bias.put_beside(c, plan, slot, beside);
      put_weights<SquareProducts::kByWarpgroups>(square, own_row, slot, c);
    };
    products.for_rows(own_q, base + l.k, weigh, [](int, auto&) {});
  }
  /// weightsᵀ · dout, where it is wanted.
  __device__ void make_dv(int image) const {
    if (load.params.dv.data == nullptr) return;
    float dv[kN8][4] = {};
    add_by_keys(products, dv, base + load.l.dout, square, square.b_rows(0) + load.own_row * 2);
    load.store(load.params.dv, image, dv, 1.0F);
  }
  /// Where the logits' gradients take the weights' place, dv comes before them.
  __device__ void end_weights(int image) const {
    if (two_squares) return __syncwarp();
    if constexpr (kAlone) {
      make_deltas(image, true);
    } else {
      products.template finish_copies<0>();
      __syncthreads();
    }
    make_dv(image);
    __syncthreads();
  }
  /// And in the direct form their sums, the vectors' gradients.
  __device__ void logit_gradients(int v_at, float* lines) const {
    const Plan& plan = load.plan;
    const RowsAsA<T, Size> own_dout(at_slots<Size>(base + load.l.dout + offsets.a, load.own_row));
    [[maybe_unused]] DirectSums<T, kSumsAlongY<Grid>> sums(plan);
    make_logit_gradients(products, own_dout, base + v_at, square, logits, two_squares, load.own_row,
                         deltas,
                         [&](const float(&exact)[2][4], const FragmentA<T>& rounded, int slot) {
                           if constexpr (kDirect) sums.add(exact, rounded, plan, slot);
                         });
    if constexpr (kDirect)
      if (load.works) with_bias += sums.finish(load.l, load.g, factor, lines);
  }
  /// Of the distance form.
  __device__ void vector_gradients(float* lines) const {
    const auto& l = load.l;
#pragma unroll
    for (int set = 0; set < kSets; ++set)
      if (load.works)
        with_bias +=
            distance_gradients<T>(load.plan, load.own_row, CenteredVectors<T>(l, load.shared, set),
                                  logits, factor, lines + set * 16 * l.line_pitch);
  }
  /// The table values' gradients through the tables, to dq or dk.
  __device__ void add_tables(float (&to)[kN8][4], bool of_q) const {
    if constexpr (Form != BiasForm::none)
      add_tables_backward<T>(load.p, load.plan, products, to, of_q, base + load.l.tables,
                             load.own_row, [&](int set) { return bins(kSets == 2 ? set : 0); });
  }
  __device__ void make_dq(int image) const {
    float dq[kN8][4] = {};
    add_tables(dq, true);
    add_by_queries(products, dq, base + load.l.k, logits.a(load.own_row));
    load.store(load.params.dq, image, dq, load.p.attention.scale);
  }
  /// The tables' own gradients, where they are wanted.
  __device__ void add_to_tables(bool first) const {
    const auto& l = load.l;
    if constexpr (Form != BiasForm::none)
      if (load.params.dtables != nullptr)
        for (int set = 0; set < load.plan.sets; ++set)
          add_table_gradients(load.params, load.plan, set, first, bins(kSets == 2 ? set : 0),
                              products, base + (set == 0 && load.p.stage.first_from_q ? l.q : l.k));
  }
};

}  // namespace sape2::kernels::cuda::head
