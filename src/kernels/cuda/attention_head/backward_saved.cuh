#pragma once

#include "kernels/cuda/arch/ldmatrix.cuh"
#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/arch/pdl.cuh"
#include "kernels/cuda/attention_head/forward.cuh"
#include "kernels/cuda/attention_head/kernels.h"
#include "kernels/cuda/attention_head/layout.h"
#include "kernels/cuda/attention_head/lines.cuh"
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

/// Attention backward where forward has left what stage 1 makes: the direct form in blocks that are
/// alone on their multiprocessor. Whatever is read of an image comes in while the image before is
/// in work; barriers are few, since a warp's vectors, their gradients and those of its table values
/// are its own.
namespace sape2::kernels::cuda::head {

/// What a lane reads of an image before its turn comes.
template <int Pieces>
struct ImageAhead {
  SoftmaxRow softmax[2];  // of its queries
  uint4 vector[Pieces];   // its line's

  __device__ void read(const Plan& plan, const SoftmaxRow* rows, const std::int16_t* tokens,
                       int own_row, const KeptPlaces& kept, bool is_patch) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int token = token_of(plan, tokens, own_row, Lane().g + 8 * half);
      softmax[half] = token < 0 ? SoftmaxRow{INFINITY, 1.0F} : rows[token];
    }
#pragma unroll
    for (int i = 0; i < Pieces; ++i)
      vector[i] = is_patch ? kept.warp[i * 32 + threadIdx.x % 32] : uint4{};
  }
};

template <class T, int Size, Grid Grid>
__global__ void __launch_bounds__(kHeadThreads<Size, BiasForm::direct, Grid, true>, 1)
    kept_backward_kernel(const __grid_constant__ BackwardParams params) {
  constexpr BiasForm kForm = BiasForm::direct;
  constexpr int kPieces = Size / 8, kRow = kRowBytes<Size>, kLength = longest_line(Grid);
  extern __shared__ __align__(1024) unsigned char shared[];
  const ForwardParams& p = params.forward;
  const auto plan = make_plan<Size, kForm, Grid, true>(p);
  const auto& l = plan.layout;
  const auto& g = plan.geometry;
  const int turn = blockIdx.x / g.heads, head = blockIdx.x - turn * g.heads;
  const Lane lane;
  // Warps that only complete a warpgroup look at the last slots, too, and write nothing.
  const int in_warp = threadIdx.x % 32, warp = threadIdx.x / 32;
  const bool works = warp < l.warps;
  const int own_row = (works ? warp : l.warps - 1) * 16;
  const LanePlaces<Size> places;
  const Products<T, Size, Grid, true, is_exact(Grid)> products{places, l.slots, works};
  const std::uint32_t base = shared_address(shared);
  // Weights, and then the logits' gradients in their places.
  const Padded<T> square{shared + l.square, l.square_pitch};
  const Padded<T> bins{shared + l.bins, l.bins_pitch};
  auto* const tokens = reinterpret_cast<std::int16_t*>(shared + l.tokens);
  float* const deltas = reinterpret_cast<float*>(shared + l.deltas);
  // The warp's vectors, as long as no weights have come so far, and their gradients.
  constexpr int kVector = 16;
  T* const vectors = square.row(own_row) + (l.square_pitch / 2 - 2 * kVector);
  float* const lines = reinterpret_cast<float*>(bins.row(own_row));
  // Lanes 0–15 have the patches' rows of the grid, lanes 16–31 their columns.
  const int axis = in_warp / 16, slot = own_row + in_warp % 16;
  const LineWalk walk(l, g, plan.span, slot, axis);
  const float factor = bias_factor<kForm>(p.attention, head);
  float with_bias = 0.0F;
  GateSums gate_sums;

  note_tokens(plan, tokens);
  Meeting<true> all(shared + l.meeting());
  wait_for_previous();
  __syncthreads();
  const auto copies = [&] { return SlotCopies<T, Size, Grid>(plan, tokens, own_row); };
  const auto start = [&](int place, const ConstView& view, int image) {
    if (works && image < p.images) copies().start(shared + place, head_of<T>(view, image, head), g);
  };
  const auto kept_of = [&](std::int64_t image) {
    return KeptPlaces(p.kept, plan, Grid, image * g.heads + head, own_row);
  };
  // Its values have to wait for a place.
  ImageAhead<kVector / 8> ahead;
  const auto load_q = [&](int image, int place) {
    start(place, p.attention.q, image);
    if (image >= p.images) return;
    const auto kept = kept_of(image);
    ahead.read(plan, p.attention.softmax + (std::int64_t(image) * g.heads + head) * g.tokens,
               tokens, own_row, kept, walk.is_patch);
    if (works) fetch_lines(kept);
  };
  const auto load_k = [&](int image) {
    start(l.k, p.attention.k, image);
    commit_copies();
  };
  const auto load_dout = [&](int image) {
    start(l.dout, params.dout, image);
    commit_copies();
  };
  load_q(turn, l.q);
  load_k(turn);
  load_tables<T, Size>(p, plan, head, shared + l.tables);
  load_dout(turn);
  products.template finish_copies<1>();
  all.arrive();
  bool second = false;  // q and v have changed places
  for (int image = turn; image < p.images; image += p.turns, second = !second) {
    if (image + p.turns >= p.images) let_next_begin();
    const int q_at = second ? l.v : l.q, v_at = second ? l.q : l.v;
    const auto store = [&](const View& view, const float(&result)[kPieces][4], float times) {
      if (works)
        store_slots(head_of<T>(view, image, head), result, tokens, own_row, {times, times}, plan);
    };
    all.wait();

    // Weights.
    start(v_at, p.attention.v, image);
    commit_copies();
    const RowsDelta<T, Size, Grid> out_rows(copies(), head_of<T>(params.out, image, head), g);
    {
      const RowsAsA<T, Size> own_q(at_slots<Size>(base + q_at + places.a, own_row));
      if (works) {
        T* const own = vectors + in_warp % 16 * (l.square_pitch / 2) + axis * kVector;
#pragma unroll
        for (int i = 0; i < kVector / 8; ++i) reinterpret_cast<uint4*>(own)[i] = ahead.vector[i];
      }
      __syncwarp();
      const float less[2] = {less_of(ahead.softmax[0]), less_of(ahead.softmax[1])};
      const Logits<T, kForm, T> bias(p, plan, head, vectors, l.square_pitch / 2, kLog2E, less,
                                     works);
      __syncwarp();
      const auto make_weights = [&](int at, float(&c)[2][4]) {
        if (!works) return;
        const auto beside = bias.logits_beside(c, plan, at);
        bias.make(c, plan, at);
        bias.put_beside(c, plan, at, beside);
        put_weights<products.kByWarpgroups>(square, own_row, at, c);
      };
      products.for_rows(own_q, base + l.k, make_weights, [](int, auto&) {});
    }
    products.template finish_copies<1>();
    all.arrive();
    if (works) out_rows.finish(shared + l.dout + own_row * kRow, deltas + own_row);
    all.wait();

    float dv[kPieces][4] = {};
    if (params.dv.data != nullptr) {
      const std::uint32_t weights_at = square.b_rows(0) + own_row * 2;
      products.add_columns(dv, base + l.dout, l.slots, [&](std::uint32_t(&weights)[4], int at) {
        if (works) load_turned(weights, weights_at + at * square.pitch);
      });
    }
    // Gradients of vectors will take the place of anybody's rows of dout.
    const RowsAsA<T, Size> own_dout(at_slots<Size>(base + l.dout + places.a, own_row));
    products.template finish_copies<0>();
    all.arrive();
    if (params.dv.data != nullptr) store(params.dv, dv, 1.0F);
    all.wait();

    // The logits' gradients.
    PackedLine<T, kLength> line;
    {
      DirectSums<T, kSumsAlongY<Grid>> sums(plan);
      make_logit_gradients(products, own_dout, base + v_at, square, square, false, own_row, deltas,
                           [&](const float(&exact)[2][4], const FragmentA<T>& rounded, int at) {
                             sums.add(exact, rounded, plan, at);
                           });
      line.read(kept_of(image), walk.is_patch);
      if (works) sums.put(l, g, lines);
    }

    // Gradients of vectors, then of table values and gates.
    if (works) {
      __syncwarp();
      float d[kLength];
      read_gradients<Grid>(d, walk, lines + in_warp % 16 * l.line_pitch + axis * l.row_width);
      __syncwarp();
      clear_bins(bins, own_row);
#pragma unroll
      for (int m = 0; m < kLength; ++m) {
        with_bias += d[m] * line.vector(m);
        d[m] *= factor;
      }
      __syncwarp();
      walk_usual_line_back<T, Grid, usual_span(kForm)>(
          walk, l, p.stage.axes[axis], axis != 0, Gates(p.stage, head), p.attention.scale, d, line,
          bins.row(slot) + axis * l.second_table, square.row(slot), slot, gate_sums);
    }
    all.arrive();

    // dq, dk: the logits' gradients, and the table values' through the tables.
    const auto add_tables = [&](float(&to)[kPieces][4], bool of_q) {
      add_tables_back<T>(p, plan, products, to, of_q, base + l.tables, own_row,
                         [&](int) { return bins; });
    };
    if (params.dq.data != nullptr) {
      float dq[kPieces][4] = {};
      add_tables(dq, true);
      const std::uint32_t as_queries = square.a(own_row);
      products.add_columns(dq, base + l.k, l.slots, [&](std::uint32_t(&gradients)[4], int at) {
        if (works) load_matrices(gradients, as_queries + at * 2);
      });
      store(params.dq, dq, p.attention.scale);
    }
    all.wait();
    if (params.dtables != nullptr)
      add_table_gradients(params, plan, 0, image == turn, bins, products,
                          base + (p.stage.first_from_q ? q_at : l.k));
    float dk[kPieces][4] = {};
    if (params.dk.data != nullptr) add_tables(dk, false);
    all.arrive();
    load_q(image + p.turns, v_at);
    all.wait();
    load_k(image + p.turns);
    load_dout(image + p.turns);
    if (params.dk.data != nullptr) {
      const std::uint32_t as_keys = square.b_rows(0) + own_row * 2;
      products.add_columns(dk, base + q_at, l.slots, [&](std::uint32_t(&gradients)[4], int at) {
        if (works) load_turned(gradients, as_keys + at * square.pitch);
      });
    }
    products.template finish_copies<1>();
    all.arrive();
    if (params.dk.data != nullptr) store(params.dk, dk, p.attention.scale);
  }
  put_block_sums(params, with_bias, gate_sums, deltas);
}

}  // namespace sape2::kernels::cuda::head
