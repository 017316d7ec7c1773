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
#include "kernels/cuda/host/params.h"

/// Attention backward, a head a block. Weights, and then the logits' gradients in their place, fill
/// a square of 16-bit numbers in shared memory; a warp reads its rows of it as queries, its columns
/// as keys. Every output has one owner: no atomics, one order of sums.
namespace sape2::kernels::cuda::head {

template <class T, int Size, BiasForm Form, Grid Grid>
__global__ void __launch_bounds__(kHeadThreads<Size, Form, Grid, true>, 1)
    backward_kernel(const __grid_constant__ BackwardParams params) {
  constexpr bool kDirect = Form == BiasForm::direct, kDistance = kIsDistance<Form>;
  constexpr bool kUsual = Grid != Grid::any, kAlone = is_alone(Grid, Size);
  constexpr int kSets = kHeadSets<Form>, kPieces = Size / 8, kRow = kRowBytes<Size>;
  extern __shared__ __align__(1024) unsigned char shared[];
  const ForwardParams& p = params.forward;
  const auto plan = make_plan<Size, Form, Grid, true>(p);
  const auto& l = plan.layout;
  const auto& g = plan.geometry;
  const int turn = blockIdx.x / g.heads, head = blockIdx.x - turn * g.heads;
  const Lane lane;
  // Warps that only complete a warpgroup look at the last slots, too, and write nothing.
  const int in_warp = threadIdx.x % 32, warp = threadIdx.x / 32;
  const bool works = !kAlone || warp < l.warps;
  const int own_row = (works ? warp : l.warps - 1) * 16;
  const LanePlaces<Size> places;
  constexpr bool kAhead = is_exact(Grid) || Form == BiasForm::none;
  const Products<T, Size, Grid, true, kAhead> products{places, l.slots, works};
  const std::uint32_t base = shared_address(shared);
  // Weights, and the logits' gradients, which take their place where there is just one square.
  const Padded<T> square{shared + l.square, l.square_pitch};
  const Padded<T> logits{shared + l.logits, l.square_pitch};
  const bool two_squares = kUsual ? has_two_squares(Grid, Size) : l.square != l.logits;
  const auto bins_of = [&](int set) {
    return Padded<T>{shared + l.bins + set * l.slots * l.bins_pitch, l.bins_pitch};
  };
  auto* const tokens = reinterpret_cast<std::int16_t*>(shared + l.tokens);
  float* const deltas = reinterpret_cast<float*>(shared + l.deltas);
  float* const values = reinterpret_cast<float*>(square.row(own_row));
  const KeptLine<kSets> kept{params.scratch +
                             (std::int64_t(blockIdx.x) * l.warps + own_row / 16) *
                                 kept_entries(l.grid, g) * KeptLine<kSets>::kNumbers * 32 +
                             in_warp};

  Meeting<false> all(nullptr);
  note_tokens(plan, tokens);
  wait_for_previous();
  __syncthreads();
  const auto copies = [&] { return SlotCopies<T, Size, Grid>(plan, tokens, own_row); };
  const float factor = bias_factor<Form>(p.attention, head);
  float with_bias = 0.0F;
  GateSums gate_sums;
  const auto load_image = [&](int image, bool with_tables) {
    const auto load = [&](int place, const ConstView& view) {
      if (works && (!kAlone || image < p.images))
        copies().start(shared + place, head_of<T>(view, image, head), g);
    };
    load(l.q, p.attention.q);
    load(l.k, p.attention.k);
    commit_copies();
    const auto load_tables_once = [&] {
      if (plan.has_tables && with_tables) load_tables<T, Size>(p, plan, head, shared + l.tables);
    };
    // Where dout is needed later, tables had better not come behind it.
    if constexpr (kAlone) load_tables_once();
    load(l.dout, params.dout);
    commit_copies();
    if (!l.reload) load(l.v, p.attention.v);
    commit_copies();
    if constexpr (!kAlone) load_tables_once();
  };
  if constexpr (kAlone) load_image(turn, true);
  for (int image = turn; image < p.images; image += p.turns) {
    if (kAlone && image + p.turns >= p.images) let_next_begin();
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
    const auto store = [&](const View& view, const float(&result)[kPieces][4], float times) {
      if (works)
        store_slots(head_of<T>(view, image, head), result, tokens, own_row, {times, times}, plan);
    };
    const auto load = [&](int place, const ConstView& view) {
      if (works) copies().start(shared + place, head_of<T>(view, image, head), g);
      commit_copies();
    };
    if constexpr (!kAlone) load_image(image, image == turn);
    QueryRows rows;
    rows.read(plan, p.attention.softmax + batch_head * g.tokens, tokens, own_row);
    const auto make_deltas = [&](bool with_v) {
      const RowsDelta<T, Size, Grid> out_rows(copies(), head_of<T>(params.out, image, head), g);
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
      const std::uint32_t keys = base + l.k + places.b_rows;
      const RowsAsA<T, Size> own_q(at_slots<Size>(base + l.q + places.a, own_row));
      if constexpr (Form != BiasForm::none) {
        const RoundingToo<T, KeptLine<kSets>> to_keep{
            kept, !kUsual && keeps_lines(p.layout.grid, Form, g.head_size)};
        make_vectors<Form, Grid>(p, plan, own_row, products, head, batch_head, own_q,
                                 {base + l.q, base + l.k, keys,
                                  at_slots<Size>(base + l.k + places.a, own_row), base + l.tables},
                                 vectors, values, to_keep, vectors_of, all);
      }
      // Warps without slots look at others' vectors.
      if (kDistance || l.reload || (products.kByWarpgroups && l.warps % 4 != 0)) __syncthreads();
      if (l.reload) load(v_at, p.attention.v);
      if constexpr (kAlone) copies().fetch(head_of<T>(params.out, image, head));
      [[maybe_unused]] NearRows<T> near_rows[kSets];
      if constexpr (kDistance) {
#pragma unroll
        for (int set = 0; set < kSets; ++set)
          if (works)
            Near<T>(l, shared, set).make(l, g, own_row, [&](int slot) {
              return vectors_of(slot) + set * 16 * l.line_pitch;
            });
        if (two_squares) products.template finish_copies<0>();
        __syncthreads();
#pragma unroll
        for (int set = 0; set < kSets; ++set)
          near_rows[set].begin(Near<T>(l, shared, set), own_row);
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
            bias.add_distances(c, plan, Near<T>(l, shared, set), near_rows[set], has_bias, slot);
        }
        bias.put_beside(c, plan, slot, beside);
        put_weights<products.kByWarpgroups>(square, own_row, slot, c);
      };
      products.for_rows(own_q, base + l.k, make_weights, [](int, auto&) {});
    }

    // dv = weightsᵀ · dout.
    const auto make_dv = [&] {
      if (params.dv.data == nullptr) return;
      float dv[kPieces][4] = {};
      const std::uint32_t weights_at = square.b_rows(0) + own_row * 2;
      products.add_columns(dv, base + l.dout, l.slots, [&](std::uint32_t(&weights)[4], int slot) {
        if (works) load_turned(weights, weights_at + slot * square.pitch);
      });
      store(params.dv, dv, 1.0F);
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
      const RowsAsA<T, Size> own_dout(at_slots<Size>(base + l.dout + places.a, own_row));
      [[maybe_unused]] DirectSums<T, kSumsAlongY<Grid>> sums(plan);
      make_logit_gradients(products, own_dout, base + v_at, square, logits, two_squares, own_row,
                           deltas,
                           [&](const float(&exact)[2][4], const FragmentA<T>& rounded, int slot) {
                             if constexpr (kDirect) sums.add(exact, rounded, plan, slot);
                           });
      if constexpr (kDirect)
        if (works) with_bias += sums.finish(l, g, factor, lines);
    }
    [[maybe_unused]] UsualKept<kUsual ? longest_line(Grid) : 1> line;
    if constexpr (kUsual && kDirect && Size == 64) line.read(kept);
    // From here on nobody needs v.
    __syncthreads();
    if (two_squares) make_dv();
    if constexpr (kUsual && kDirect && Size < 64) line.read(kept);
    if (l.reload) load(l.q, p.attention.q);

    // Gradients of vectors, then of table values and gates.
    if constexpr (kDistance) {
#pragma unroll
      for (int set = 0; set < kSets; ++set)
        if (works)
          with_bias += distance_gradients<T>(plan, own_row, Near<T>(l, shared, set), logits, factor,
                                             lines + set * 16 * l.line_pitch);
      if constexpr (kUsual) line.read(kept);
      __syncthreads();
    }
    if (Form != BiasForm::none && works)
      take_lines_back<T, Form, Grid>(params, plan, own_row, head, batch_head, lines, kept, line,
                                     bins_of, logits, gate_sums);

    // dq, dk: the logits' gradients, and the table values' through the tables.
    const auto add_tables = [&](float(&to)[kPieces][4], bool of_q) {
      if constexpr (Form != BiasForm::none)
        add_tables_back<T>(p, plan, products, to, of_q, base + l.tables, own_row,
                           [&](int set) { return bins_of(kSets == 2 ? set : 0); });
    };
    if (params.dq.data != nullptr) {
      float dq[kPieces][4] = {};
      add_tables(dq, true);
      products.add_columns(dq, base + l.k, l.slots, [&](std::uint32_t(&gradients)[4], int slot) {
        if (works) load_matrices(gradients, as_queries + slot * 2);
      });
      store(params.dq, dq, p.attention.scale);
    }
    float dk[kPieces][4] = {};
    if (params.dk.data != nullptr) add_tables(dk, false);
    products.template finish_copies<0>();
    __syncthreads();
    const auto add_tables_gradients = [&] {
      if constexpr (Form != BiasForm::none)
        if (params.dtables != nullptr)
          for (int set = 0; set < plan.sets; ++set)
            add_table_gradients(params, plan, set, image == turn, bins_of(kSets == 2 ? set : 0),
                                products, base + (set == 0 && p.stage.first_from_q ? l.q : l.k));
    };
    if constexpr (kAlone) add_tables_gradients();
    if (params.dk.data != nullptr) {
      products.add_columns(dk, base + l.q, l.slots, [&](std::uint32_t(&gradients)[4], int slot) {
        if (works) load_turned(gradients, as_keys + slot * logits.pitch);
      });
      store(params.dk, dk, p.attention.scale);
    }
    if constexpr (!kAlone) add_tables_gradients();
    __syncthreads();
    if constexpr (kAlone) load_image(image + p.turns, false);
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
        constexpr Grid kGrid = decltype(grid)::value;
        const auto start = [&](void (*kernel)(BackwardParams)) {
          launch(kernel, std::int64_t(p.forward.turns) * g.heads, {.overlapping = true},
                 threads_of(kGrid, kSize, p.forward.layout), p.forward.layout.bytes, stream, p);
        };
        if constexpr (keeps_lines(kGrid, kForm, kSize)) {
          start(kept_backward_kernel<T, kSize, kGrid>);
        } else {
          start(backward_kernel<T, kSize, kForm, kGrid>);
        }
      });
    });
  });
}

}  // namespace sape2::kernels::cuda::head
