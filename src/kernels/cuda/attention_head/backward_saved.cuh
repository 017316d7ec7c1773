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
template <int Chunks>
struct ImageAhead {
  SoftmaxRow softmax[2];  // of its queries
  uint4 vector[Chunks];   // its line's

  __device__ void read(const Plan& plan, const SoftmaxRow* rows, const std::int16_t* tokens,
                       int own_row, const SavedStage1& saved, bool is_patch) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int token = token_of(plan, tokens, own_row, Lane().g + 8 * half);
      softmax[half] = token < 0 ? SoftmaxRow{INFINITY, 1.0F} : rows[token];
    }
#pragma unroll
    for (int i = 0; i < Chunks; ++i)
      vector[i] = is_patch ? saved.warp[i * 32 + threadIdx.x % 32] : uint4{};
  }
};

/// What a block copies of an image, and when it may: q's place alternates with v's.
template <class T, int Size, GridKind Grid, int Chunks>
struct SavedLoads : HeadTokens<T, Size, Grid> {
  using Tokens = HeadTokens<T, Size, Grid>;
  using Tokens::own_row, Tokens::head, Tokens::works, Tokens::copies;
  using Tokens::p, Tokens::plan, Tokens::l, Tokens::g, Tokens::shared, Tokens::tokens;
  const BackwardParams& params;
  const LineWalk& walk;
  ImageAhead<Chunks>& ahead;

  __device__ void start(int place, const ConstView& view, int image) const {
    if (works && image < p.images) copies().start(shared + place, head_of<T>(view, image, head), g);
  }
  __device__ SavedStage1 saved_of(std::int64_t image) const {
    return SavedStage1(p.saved, plan, Grid, image * g.heads + head, own_row);
  }
  __device__ void load_q(int image, int place) const {
    start(place, p.attention.q, image);
    if (image >= p.images) return;
    const auto saved = saved_of(image);
    ahead.read(plan, p.attention.softmax + (std::int64_t(image) * g.heads + head) * g.tokens,
               tokens, own_row, saved, walk.is_patch);
    if (works) fetch_lines(saved);
  }
  __device__ void load_k(int image) const {
    start(l.k, p.attention.k, image);
    cp_async_commit();
  }
  __device__ void load_dout(int image) const {
    start(l.dout, params.dout, image);
    cp_async_commit();
  }
};

/// Gradients of vectors become those of table values, scores and gates: a lane takes a line.
template <class T, GridKind Grid, class Loads, class Line>
__device__ void saved_lines_backward(const Loads& load, const Padded<T>& bins,
                                     const Padded<T>& square, float* lines, const Line& line,
                                     float factor, int in_warp, int axis, int slot,
                                     float& with_bias, GateSums& gate_sums) {
  constexpr int kLength = longest_line(Grid);
  const auto& l = load.l;
  __syncwarp();
  float d[kLength];
  read_gradients<Grid>(d, load.walk, lines + in_warp % 16 * l.line_pitch + axis * l.row_width);
  __syncwarp();
  clear_bins(bins, load.own_row);
#pragma unroll
  for (int m = 0; m < kLength; ++m) {
    with_bias += d[m] * line.vector(m);
    d[m] *= factor;
  }
  __syncwarp();
  walk_specialized_line_backward<T, Grid, specialized_span(BiasForm::direct)>(
      load.walk, l, load.p.stage.axes[axis], axis != 0, Gates(load.p.stage, load.head),
      load.p.attention.scale, d, line, bins.row(slot) + axis * l.second_table, square.row(slot),
      slot, gate_sums);
}

template <class T, int Size, GridKind Grid>
__global__ void __launch_bounds__(kHeadThreads<Size, BiasForm::direct, Grid, true>, 1)
    backward_saved_kernel(const __grid_constant__ BackwardParams params) {
  constexpr BiasForm kForm = BiasForm::direct;
  constexpr int kN8 = Size / 8, kRow = kRowBytes<Size>, kLength = longest_line(Grid);
  extern __shared__ __align__(1024) unsigned char shared[];
  const ForwardParams& p = params.forward;
  const auto plan = make_plan<Size, kForm, Grid, true>(p);
  const auto& l = plan.layout;
  const auto& g = plan.geometry;
  const int first_image = blockIdx.x / g.heads, head = blockIdx.x - first_image * g.heads;
  const Lane lane;
  // Warps that only complete a warpgroup look at the last slots, too, and write nothing.
  const int in_warp = threadIdx.x % 32, warp = threadIdx.x / 32;
  const bool works = warp < l.warps;
  const int own_row = (works ? warp : l.warps - 1) * 16;
  const LdmatrixOffsets<Size> offsets;
  const Products<T, Size, Grid, true, is_exact(Grid)> products{offsets, l.slots, works};
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

  list_tokens(plan, tokens);
  SplitBarrier<true> all(shared + l.split_barrier());
  pdl_wait();
  __syncthreads();
  // Its values have to wait for a place.
  ImageAhead<kVector / 8> ahead;
  unsigned char* const memory = shared;
  const SavedLoads<T, Size, Grid, kVector / 8> load{
      {p, plan, l, g, memory, tokens, own_row, head, works}, params, walk, ahead};
  load.load_q(first_image, l.q);
  load.load_k(first_image);
  load_tables<T, Size>(p, plan, head, shared + l.tables);
  load.load_dout(first_image);
  products.template finish_copies<1>();
  all.arrive();
  bool second = false;  // q and v have changed places
  for (int image = first_image; image < p.images; image += p.blocks_per_head, second = !second) {
    if (image + p.blocks_per_head >= p.images) pdl_launch_dependents();
    const int q_at = second ? l.v : l.q, v_at = second ? l.q : l.v;
    all.wait();

    // Weights.
    load.start(v_at, p.attention.v, image);
    cp_async_commit();
    const RowsDelta<T, Size, Grid> out_rows(load.copies(), head_of<T>(params.out, image, head), g);
    {
      const RowsAsA<T, Size> own_q(at_slots<Size>(base + q_at + offsets.a, own_row));
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

    float dv[kN8][4] = {};
    if (params.dv.data != nullptr) {
      const std::uint32_t weights_at = square.b_rows(0) + own_row * 2;
      products.add_columns(dv, base + l.dout, l.slots, [&](std::uint32_t(&weights)[4], int at) {
        if (works) ldmatrix_x4_trans(weights, weights_at + at * square.pitch);
      });
    }
    // Gradients of vectors will take the place of anybody's rows of dout.
    const RowsAsA<T, Size> own_dout(at_slots<Size>(base + l.dout + offsets.a, own_row));
    products.template finish_copies<0>();
    all.arrive();
    if (params.dv.data != nullptr) load.store(params.dv, image, dv, 1.0F);
    all.wait();

    // The logits' gradients.
    PackedLine<T, kLength> line;
    {
      DirectSums<T, kSumsAlongY<Grid>> sums(plan);
      make_logit_gradients(products, own_dout, base + v_at, square, square, false, own_row, deltas,
                           [&](const float(&exact)[2][4], const FragmentA<T>& rounded, int at) {
                             sums.add(exact, rounded, plan, at);
                           });
      line.read(load.saved_of(image), walk.is_patch);
      if (works) sums.put(l, g, lines);
    }

    // Gradients of vectors, then of table values and gates.
    if (works) {
      saved_lines_backward<T, Grid>(load, bins, square, lines, line, factor, in_warp, axis, slot,
                                    with_bias, gate_sums);
    }
    all.arrive();

    // dq, dk: the logits' gradients, and the table values' through the tables.
    const auto add_tables = [&](float(&to)[kN8][4], bool of_q) {
      add_tables_backward<T>(p, plan, products, to, of_q, base + l.tables, own_row,
                             [&](int) { return bins; });
    };
    if (params.dq.data != nullptr) {
      float dq[kN8][4] = {};
      add_tables(dq, true);
      const std::uint32_t as_queries = square.a(own_row);
      products.add_columns(dq, base + l.k, l.slots, [&](std::uint32_t(&gradients)[4], int at) {
        if (works) ldmatrix_x4(gradients, as_queries + at * 2);
      });
      load.store(params.dq, image, dq, p.attention.scale);
    }
    all.wait();
    if (params.dtables != nullptr)
      add_table_gradients(params, plan, 0, image == first_image, bins, products,
                          base + (p.stage.first_from_q ? q_at : l.k));
    float dk[kN8][4] = {};
    if (params.dk.data != nullptr) add_tables(dk, false);
    all.arrive();
    load.load_q(image + p.blocks_per_head, v_at);
    all.wait();
    load.load_k(image + p.blocks_per_head);
    load.load_dout(image + p.blocks_per_head);
    if (params.dk.data != nullptr) {
      const std::uint32_t as_keys = square.b_rows(0) + own_row * 2;
      products.add_columns(dk, base + q_at, l.slots, [&](std::uint32_t(&gradients)[4], int at) {
        if (works) ldmatrix_x4_trans(gradients, as_keys + at * square.pitch);
      });
    }
    products.template finish_copies<1>();
    all.arrive();
    if (params.dk.data != nullptr) load.store(params.dk, image, dk, p.attention.scale);
  }
  put_block_sums(params, with_bias, gate_sums, deltas);
}

}  // namespace sape2::kernels::cuda::head
