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

/// The steps of attention backward where forward has left what stage 1 makes (backward_saved.cuh).
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

/// The steps of an image. Weights, and then the logits' gradients, are in the square.
template <class T, int Size, GridKind Grid>
struct SavedTile {
  static constexpr int kN8 = Size / 8, kVector = 16;
  using SquareProducts = Products<T, Size, Grid, true, is_exact(Grid)>;
  using Line = PackedLine<T, longest_line(Grid)>;
  const SavedLoads<T, Size, Grid, kVector / 8>& load;
  const SquareProducts& products;
  const LdmatrixOffsets<Size>& offsets;
  const std::uint32_t& base;
  const Padded<T>&square, &bins;
  float* const& deltas;
  T* const& vectors;
  float* const& lines;
  const int &in_warp, &axis, &slot;
  const float& factor;
  float& with_bias;
  GateSums& gate_sums;

  /// The vectors come to where the warp's rows end, which it fills last.
  __device__ void put_vectors() const {
    if (!load.works) return;
    T* const own = vectors + in_warp % 16 * (load.l.square_pitch / 2) + axis * kVector;
#pragma unroll
    for (int i = 0; i < kVector / 8; ++i) reinterpret_cast<uint4*>(own)[i] = load.ahead.vector[i];
  }
  __device__ void make_weights(int q_at) const {
    const auto& l = load.l;
    const Plan& plan = load.plan;
    const RowsAsA<T, Size> own_q(at_slots<Size>(base + q_at + offsets.a, load.own_row));
    put_vectors();
    __syncwarp();
    const float less[2] = {less_of(load.ahead.softmax[0]), less_of(load.ahead.softmax[1])};
    const Logits<T, BiasForm::direct, T> bias(load.p, plan, load.head, vectors, l.square_pitch / 2,
                                              kLog2E, less, load.works);
    __syncwarp();
    const auto weigh = [&](int at, float(&c)[2][4]) {
      if (!load.works) return;
      const auto beside = bias.logits_beside(c, plan, at);
      bias.make(c, plan, at);
      bias.put_beside(c, plan, at, beside);
      put_weights<SquareProducts::kByWarpgroups>(square, load.own_row, at, c);
    };
    products.for_rows(own_q, base + l.k, weigh, [](int, auto&) {});
  }
  /// The logits' gradients, and their sums along the grid's rows and columns.
  __device__ void logit_gradients(const RowsAsA<T, Size>& own_dout, int v_at, Line& line,
                                  int image) const {
    const Plan& plan = load.plan;
    DirectSums<T, kSumsAlongY<Grid>> sums(plan);
    make_logit_gradients(products, own_dout, base + v_at, square, square, false, load.own_row,
                         deltas,
                         [&](const float(&exact)[2][4], const FragmentA<T>& rounded, int at) {
                           sums.add(exact, rounded, plan, at);
                         });
    line.read(load.saved_of(image), load.walk.is_patch);
    if (load.works) sums.put(load.l, load.g, lines);
  }
  /// Gradients of vectors, then of table values and gates.
  __device__ void lines_backward(const Line& line) const {
    saved_lines_backward<T, Grid>(load, bins, square, lines, line, factor, in_warp, axis, slot,
                                  with_bias, gate_sums);
  }
  /// The table values' gradients through the tables, to dq or dk.
  __device__ void add_tables(float (&to)[kN8][4], bool of_q) const {
    add_tables_backward<T>(load.p, load.plan, products, to, of_q, base + load.l.tables,
                           load.own_row, [&](int) { return bins; });
  }
  __device__ void make_dq(int image) const {
    float dq[kN8][4] = {};
    add_tables(dq, true);
    add_by_queries(products, dq, base + load.l.k, square.a(load.own_row));
    load.store(load.params.dq, image, dq, load.p.attention.scale);
  }
};

}  // namespace sape2::kernels::cuda::head
