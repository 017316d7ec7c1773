#pragma once

#include "kernels/cuda/arch/ldmatrix.cuh"
#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/arch/pdl.cuh"
#include "kernels/cuda/attention_head/backward_saved.cuh"
#include "kernels/cuda/attention_head/backward_tile.cuh"
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

template <class T, int Size, BiasForm Form, GridKind Grid>
__global__ void __launch_bounds__(kHeadThreads<Size, Form, Grid, true>, 1)
    backward_kernel(const __grid_constant__ BackwardParams params) {
  using Steps = BackwardTile<T, Size, Form, Grid>;
  constexpr bool kDirect = Form == BiasForm::direct, kDistance = kIsDistance<Form>;
  constexpr bool kSpecialized = Grid != GridKind::any, kAlone = is_alone(Grid, Size);
  constexpr int kSets = kVectorSets<Form>, kN8 = Size / 8;
  extern __shared__ __align__(1024) unsigned char shared[];
  const ForwardParams& p = params.forward;
  const auto plan = make_plan<Size, Form, Grid, true>(p);
  const auto& l = plan.layout;
  const auto& g = plan.geometry;
  const int first_image = blockIdx.x / g.heads, head = blockIdx.x - first_image * g.heads;
  // Warps that only complete a warpgroup look at the last slots, too, and write nothing.
  const int in_warp = threadIdx.x % 32, warp = threadIdx.x / 32;
  const bool works = !kAlone || warp < l.warps;
  const int own_row = (works ? warp : l.warps - 1) * 16;
  const LdmatrixOffsets<Size> offsets;
  const typename Steps::SquareProducts products{offsets, l.slots, works};
  const std::uint32_t base = shared_address(shared);
  // Weights, and the logits' gradients, which take their place where there is just one square.
  const Padded<T> square{shared + l.square, l.square_pitch};
  const Padded<T> logits{shared + l.logits, l.square_pitch};
  const bool two_squares = kSpecialized ? has_two_squares(Grid, Size) : l.square != l.logits;
  auto* const tokens = reinterpret_cast<std::int16_t*>(shared + l.tokens);
  float* const deltas = reinterpret_cast<float*>(shared + l.deltas);
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
  const Steps steps{load,   products,     offsets, base,   square,    logits,   two_squares,
                    deltas, scratch_line, all,     factor, with_bias, gate_sums};
  if constexpr (kAlone) load.load_image(first_image, true);
  for (int image = first_image; image < p.images; image += p.blocks_per_head) {
    if (kAlone && image + p.blocks_per_head >= p.images) pdl_launch_dependents();
    const std::int64_t batch_head = std::int64_t(image) * g.heads + head;
    const int v_at = l.reload ? l.q : l.v;
    // Gradients of vectors, one set behind the other. The direct form's vectors lie there before;
    // the distance form's live until they are rounded.
    float* const lines =
        reinterpret_cast<float*>(shared + l.lines) + kSets * own_row * l.line_pitch;
    if constexpr (!kAlone) load.load_image(image, image == first_image);
    QueryRows rows;
    rows.read(plan, p.attention.softmax + batch_head * g.tokens, tokens, own_row);
    steps.wait_for_image(image);
    steps.make_weights(rows, image, v_at);
    steps.end_weights(image);

    const std::uint32_t as_keys = logits.b_rows(0) + own_row * 2;
    steps.logit_gradients(v_at, lines);
    [[maybe_unused]] typename Steps::Line line;
    if constexpr (kSpecialized && kDirect && Size == 64) line.read(scratch_line);
    // From here on nobody needs v.
    __syncthreads();
    if (two_squares) steps.make_dv(image);
    if constexpr (kSpecialized && kDirect && Size < 64) line.read(scratch_line);
    if (l.reload) load.load(l.q, p.attention.q, image);

    // Gradients of vectors, then of table values and gates.
    if constexpr (kDistance) {
      steps.vector_gradients(lines);
      if constexpr (kSpecialized) line.read(scratch_line);
      __syncthreads();
    }
    if (Form != BiasForm::none && works)
      lines_backward<T, Form, Grid>(params, plan, own_row, head, batch_head, lines, scratch_line,
                                    line, steps.all_bins(), logits, gate_sums);
    if (params.dq.data != nullptr) steps.make_dq(image);
    float dk[kN8][4] = {};
    if (params.dk.data != nullptr) steps.add_tables(dk, false);
    products.template finish_copies<0>();
    __syncthreads();
    if constexpr (kAlone) steps.add_to_tables(image == first_image);
    if (params.dk.data != nullptr) {
      add_by_keys(products, dk, base + l.q, logits, as_keys);
      load.store(params.dk, image, dk, p.attention.scale);
    }
    if constexpr (!kAlone) steps.add_to_tables(image == first_image);
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
