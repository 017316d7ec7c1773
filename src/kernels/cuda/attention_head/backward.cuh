#pragma once

#include "kernels/cuda/arch/ldmatrix.cuh"
#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/arch/pdl.cuh"
#include "kernels/cuda/attention_head/backward_saved.cuh"
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

/// Attention backward, one block per head. Weights, and then the logits' gradients in their place,
/// fill a square of 16-bit numbers in shared memory; a warp reads its rows of it as queries, its
/// columns as keys. Every output has one owner: no atomics, one order of sums.
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

template <class T, int Size, BiasForm Form, GridKind Grid>
__global__ void __launch_bounds__(kHeadThreads<Size, Form, Grid, true>, 1)
    backward_kernel(const __grid_constant__ BackwardParams params) {
  constexpr bool kDirect = Form == BiasForm::direct, kDistance = kIsDistance<Form>;
  constexpr bool kSpecialized = Grid != GridKind::any, kAlone = is_alone(Grid, Size);
  constexpr int kSets = kVectorSets<Form>, kN8 = Size / 8, kRow = kRowBytes<Size>;
  extern __shared__ __align__(1024) unsigned char shared[];
  const ForwardParams& p = params.forward;
  const auto plan = make_plan<Size, Form, Grid, true>(p);
  const auto& l = plan.layout;
  const auto& g = plan.geometry;
  const int first_image = blockIdx.x / g.heads, head = blockIdx.x - first_image * g.heads;
  const Lane lane;
  // Warps that only complete a warpgroup look at the last slots, too, and write nothing.
  const int in_warp = threadIdx.x % 32, warp = threadIdx.x / 32;
  const bool works = !kAlone || warp < l.warps;
  const int own_row = (works ? warp : l.warps - 1) * 16;
  const LdmatrixOffsets<Size> offsets;
  constexpr bool kAhead = is_exact(Grid) || Form == BiasForm::none;
  const Products<T, Size, Grid, true, kAhead> products{offsets, l.slots, works};
  const std::uint32_t base = shared_address(shared);
  // Weights, and the logits' gradients, which take their place where there is just one square.
  const Padded<T> square{shared + l.square, l.square_pitch};
  const Padded<T> logits{shared + l.logits, l.square_pitch};
  const bool two_squares = kSpecialized ? has_two_squares(Grid, Size) : l.square != l.logits;
  const auto bins_of = [&](int set) {
    return Padded<T>{shared + l.bins + set * l.slots * l.bins_pitch, l.bins_pitch};
  };
  auto* const tokens = reinterpret_cast<std::int16_t*>(shared + l.tokens);
  float* const deltas = reinterpret_cast<float*>(shared + l.deltas);
  float* const values = reinterpret_cast<float*>(square.row(own_row));
  const ScratchLine<kSets> scratch_line{params.scratch +
                                        (std::int64_t(blockIdx.x) * l.warps + own_row / 16) *
                                            scratch_entries(l.grid, g) *
                                            ScratchLine<kSets>::kNumbers * 32 +
                                        in_warp};

  SplitBarrier<false> all(nullptr);
  list_tokens(plan, tokens);
  pdl_wait();
  __syncthreads();
  unsigned char* const memory = shared;
  const BackwardLoads<T, Size, Grid> load{{p, plan, l, g, memory, tokens, own_row, head, works},
                                          params};
  const float factor = bias_factor<Form>(p.attention, head);
  float with_bias = 0.0F;
  GateSums gate_sums;
  if constexpr (kAlone) load.load_image(first_image, true);
  for (int image = first_image; image < p.images; image += p.blocks_per_head) {
    if (kAlone && image + p.blocks_per_head >= p.images) pdl_launch_dependents();
    const std::int64_t batch_head = std::int64_t(image) * g.heads + head;
    const int v_at = l.reload ? l.q : l.v;
    // Gradients of vectors, one set behind the other. The direct form's vectors lie there before;
    // the distance form's live until they are rounded.
    float* const lines =
        reinterpret_cast<float*>(shared + l.lines) + kSets * own_row * l.line_pitch;
    const auto vectors_of = [&](int slot) {
      const int first = slot / 16 * 16;
      float* const warps =
          kDistance ? reinterpret_cast<float*>(shared + l.vectors + first * l.square_pitch)
                    : reinterpret_cast<float*>(shared + l.lines) + first * l.line_pitch;
      return warps + (slot - first) * l.line_pitch;
    };
    float* const vectors = vectors_of(own_row);
    if constexpr (!kAlone) load.load_image(image, image == first_image);
    QueryRows rows;
    rows.read(plan, p.attention.softmax + batch_head * g.tokens, tokens, own_row);
    const auto make_deltas = [&](bool with_v) {
      const RowsDelta<T, Size, Grid> out_rows(load.copies(), head_of<T>(params.out, image, head),
                                              g);
      if (with_v) {
        products.template finish_copies<0>();
      } else {
        products.template finish_copies<1>();
      }
      __syncthreads();
      if (works) out_rows.finish(shared + l.dout + own_row * kRow, deltas + own_row);
    };
    if constexpr (kAlone) {
      products.template finish_copies<2>();
      __syncthreads();
    } else {
      // Without a wait for everybody later on, v must be there too.
      make_deltas(two_squares && !kDistance);
    }

    // Weights.
    {
      const std::uint32_t keys = base + l.k + offsets.b_rows;
      const RowsAsA<T, Size> own_q(at_slots<Size>(base + l.q + offsets.a, own_row));
      if constexpr (Form != BiasForm::none) {
        const RoundingToo<T, ScratchLine<kSets>> to_save{
            scratch_line, !kSpecialized && saves_stage1(p.layout.grid, Form, g.head_size)};
        make_vectors<Form, Grid>(p, plan, own_row, products, head, batch_head, own_q,
                                 {base + l.q, base + l.k, keys,
                                  at_slots<Size>(base + l.k + offsets.a, own_row), base + l.tables},
                                 vectors, values, to_save, vectors_of, all);
      }
      // Warps without slots look at others' vectors.
      if (kDistance || l.reload || (products.kByWarpgroups && l.warps % 4 != 0)) __syncthreads();
      if (l.reload) load.load(v_at, p.attention.v, image);
      if constexpr (kAlone) load.copies().fetch(head_of<T>(params.out, image, head));
      [[maybe_unused]] CenteredRows<T> centered_rows[kSets];
      if constexpr (kDistance) {
#pragma unroll
        for (int set = 0; set < kSets; ++set)
          if (works)
            CenteredVectors<T>(l, shared, set).make(l, g, own_row, [&](int slot) {
              return vectors_of(slot) + set * 16 * l.line_pitch;
            });
        if (two_squares) products.template finish_copies<0>();
        __syncthreads();
#pragma unroll
        for (int set = 0; set < kSets; ++set)
          centered_rows[set].begin(CenteredVectors<T>(l, shared, set), own_row);
      }
      [[maybe_unused]] const bool has_bias[2] = {on_grid(plan, own_row, lane.g),
                                                 on_grid(plan, own_row + 8, lane.g)};
      const Logits<T, Form> bias(p, plan, head, vectors, l.line_pitch, kLog2E, rows.less);
      const auto make_weights = [&](int slot, float(&c)[2][4]) {
        if (!works) return;
        const auto beside = bias.logits_beside(c, plan, slot);
        bias.make(c, plan, slot);
        if constexpr (kDistance) {
#pragma unroll
          for (int set = 0; set < kSets; ++set)
            bias.add_distances(c, plan, CenteredVectors<T>(l, shared, set), centered_rows[set],
                               has_bias, slot);
        }
        bias.put_beside(c, plan, slot, beside);
        put_weights<products.kByWarpgroups>(square, own_row, slot, c);
      };
      products.for_rows(own_q, base + l.k, make_weights, [](int, auto&) {});
    }

    // dv = weightsᵀ · dout.
    const auto make_dv = [&] {
      if (params.dv.data == nullptr) return;
      float dv[kN8][4] = {};
      const std::uint32_t weights_at = square.b_rows(0) + own_row * 2;
      products.add_columns(dv, base + l.dout, l.slots, [&](std::uint32_t(&weights)[4], int slot) {
        if (works) ldmatrix_x4_trans(weights, weights_at + slot * square.pitch);
      });
      load.store(params.dv, image, dv, 1.0F);
    };
    if (two_squares) {
      __syncwarp();
    } else {
      if constexpr (kAlone) {
        make_deltas(true);
      } else {
        products.template finish_copies<0>();
        __syncthreads();
      }
      make_dv();
      __syncthreads();
    }

    // The logits' gradients.
    const std::uint32_t as_queries = logits.a(own_row), as_keys = logits.b_rows(0) + own_row * 2;
    {
      const RowsAsA<T, Size> own_dout(at_slots<Size>(base + l.dout + offsets.a, own_row));
      [[maybe_unused]] DirectSums<T, kSumsAlongY<Grid>> sums(plan);
      make_logit_gradients(products, own_dout, base + v_at, square, logits, two_squares, own_row,
                           deltas,
                           [&](const float(&exact)[2][4], const FragmentA<T>& rounded, int slot) {
                             if constexpr (kDirect) sums.add(exact, rounded, plan, slot);
                           });
      if constexpr (kDirect)
        if (works) with_bias += sums.finish(l, g, factor, lines);
    }
    [[maybe_unused]] SpecializedScratchLine<kSpecialized ? longest_line(Grid) : 1> line;
    if constexpr (kSpecialized && kDirect && Size == 64) line.read(scratch_line);
    // From here on nobody needs v.
    __syncthreads();
    if (two_squares) make_dv();
    if constexpr (kSpecialized && kDirect && Size < 64) line.read(scratch_line);
    if (l.reload) load.load(l.q, p.attention.q, image);

    // Gradients of vectors, then of table values and gates.
    if constexpr (kDistance) {
#pragma unroll
      for (int set = 0; set < kSets; ++set)
        if (works)
          with_bias += distance_gradients<T>(plan, own_row, CenteredVectors<T>(l, shared, set),
                                             logits, factor, lines + set * 16 * l.line_pitch);
      if constexpr (kSpecialized) line.read(scratch_line);
      __syncthreads();
    }
    if (Form != BiasForm::none && works)
      lines_backward<T, Form, Grid>(params, plan, own_row, head, batch_head, lines, scratch_line,
                                    line, bins_of, logits, gate_sums);

    // dq, dk: the logits' gradients, and the table values' through the tables.
    const auto add_tables = [&](float(&to)[kN8][4], bool of_q) {
      if constexpr (Form != BiasForm::none)
        add_tables_backward<T>(p, plan, products, to, of_q, base + l.tables, own_row,
                               [&](int set) { return bins_of(kSets == 2 ? set : 0); });
    };
    if (params.dq.data != nullptr) {
      float dq[kN8][4] = {};
      add_tables(dq, true);
      products.add_columns(dq, base + l.k, l.slots, [&](std::uint32_t(&gradients)[4], int slot) {
        if (works) ldmatrix_x4(gradients, as_queries + slot * 2);
      });
      load.store(params.dq, image, dq, p.attention.scale);
    }
    float dk[kN8][4] = {};
    if (params.dk.data != nullptr) add_tables(dk, false);
    products.template finish_copies<0>();
    __syncthreads();
    const auto add_tables_gradients = [&] {
      if constexpr (Form != BiasForm::none)
        if (params.dtables != nullptr)
          for (int set = 0; set < plan.sets; ++set)
            add_table_gradients(params, plan, set, image == first_image,
                                bins_of(kSets == 2 ? set : 0), products,
                                base + (set == 0 && p.stage.first_from_q ? l.q : l.k));
    };
    if constexpr (kAlone) add_tables_gradients();
    if (params.dk.data != nullptr) {
      products.add_columns(dk, base + l.q, l.slots, [&](std::uint32_t(&gradients)[4], int slot) {
        if (works) ldmatrix_x4_trans(gradients, as_keys + slot * logits.pitch);
      });
      load.store(params.dk, image, dk, p.attention.scale);
    }
    if constexpr (!kAlone) add_tables_gradients();
    __syncthreads();
    if constexpr (kAlone) load.load_image(image + p.blocks_per_head, false);
  }

  if constexpr (Form != BiasForm::none) put_block_sums(params, with_bias, gate_sums, deltas);
}

template <class T>
void backward(const BackwardParams& p, BiasForm form, cudaStream_t stream) {
  const auto& g = p.forward.attention.geometry;
  dispatch_small_head(g.head_size, [&](auto size) {
    dispatch_form(form, [&](auto compiled) {
      constexpr int kSize = decltype(size)::value;
      constexpr BiasForm kForm = decltype(compiled)::value;
      dispatch_grid<kSize, kForm>(p.forward, [&](auto grid) {
        constexpr GridKind kGrid = decltype(grid)::value;
        const auto start = [&](void (*kernel)(BackwardParams)) {
          launch(kernel, std::int64_t(p.forward.blocks_per_head) * g.heads, {.overlapping = true},
                 threads_of(kGrid, kSize, p.forward.layout, is_sm90a()), p.forward.layout.bytes,
                 stream, p);
        };
        if constexpr (saves_stage1(kGrid, kForm, kSize)) {
          start(backward_saved_kernel<T, kSize, kGrid>);
        } else {
          start(backward_kernel<T, kSize, kForm, kGrid>);
        }
      });
    });
  });
}

}  // namespace sape2::kernels::cuda::head
