#pragma once

#include "kernels/cuda/arch/ldmatrix.cuh"
#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/arch/pdl.cuh"
#include "kernels/cuda/attention_head/backward_saved_tile.cuh"
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

template <class T, int Size, GridKind Grid>
__global__ void __launch_bounds__(kHeadThreads<Size, BiasForm::direct, Grid, true>, 1)
    backward_saved_kernel(const __grid_constant__ BackwardParams params) {
  using Steps = SavedTile<T, Size, Grid>;
  constexpr BiasForm kForm = BiasForm::direct;
  constexpr int kN8 = Size / 8, kRow = kRowBytes<Size>, kVector = Steps::kVector;
  extern __shared__ __align__(1024) unsigned char shared[];
  const ForwardParams& p = params.forward;
  const auto plan = make_plan<Size, kForm, Grid, true>(p);
  const auto& l = plan.layout;
  const auto& g = plan.geometry;
  const int first_image = blockIdx.x / g.heads, head = blockIdx.x - first_image * g.heads;
  // Warps that only complete a warpgroup look at the last slots, too, and write nothing.
  const int in_warp = threadIdx.x % 32, warp = threadIdx.x / 32;
  const bool works = warp < l.warps;
  const int own_row = (works ? warp : l.warps - 1) * 16;
  const LdmatrixOffsets<Size> offsets;
  const typename Steps::SquareProducts products{offsets, l.slots, works};
  const std::uint32_t base = shared_address(shared);
  // Weights, and then the logits' gradients in their places.
  const Padded<T> square{shared + l.square, l.square_pitch};
  const Padded<T> bins{shared + l.bins, l.bins_pitch};
  auto* const tokens = reinterpret_cast<std::int16_t*>(shared + l.tokens);
  float* const deltas = reinterpret_cast<float*>(shared + l.deltas);
  // The warp's vectors, as long as no weights have come so far, and their gradients.
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
  const Steps steps{load,  products, offsets, base, square, bins,      deltas,   vectors,
                    lines, in_warp,  axis,    slot, factor, with_bias, gate_sums};
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
    load.start(v_at, p.attention.v, image);
    cp_async_commit();
    const RowsDelta<T, Size, Grid> out_rows(load.copies(), head_of<T>(params.out, image, head), g);
    steps.make_weights(q_at);
    products.template finish_copies<1>();
    all.arrive();
    if (works) out_rows.finish(shared + l.dout + own_row * kRow, deltas + own_row);
    all.wait();

    float dv[kN8][4] = {};
    if (params.dv.data != nullptr)
      add_by_keys(products, dv, base + l.dout, square, square.b_rows(0) + own_row * 2);
    // Gradients of vectors will take the place of anybody's rows of dout.
    const RowsAsA<T, Size> own_dout(at_slots<Size>(base + l.dout + offsets.a, own_row));
    products.template finish_copies<0>();
    all.arrive();
    if (params.dv.data != nullptr) load.store(params.dv, image, dv, 1.0F);
    all.wait();

    typename Steps::Line line;
    steps.logit_gradients(own_dout, v_at, line, image);
    if (works) steps.lines_backward(line);
    all.arrive();
    if (params.dq.data != nullptr) steps.make_dq(image);
    all.wait();
    if (params.dtables != nullptr)
      add_table_gradients(params, plan, 0, image == first_image, bins, products,
                          base + (p.stage.first_from_q ? q_at : l.k));
    float dk[kN8][4] = {};
    if (params.dk.data != nullptr) steps.add_tables(dk, false);
    all.arrive();
    load.load_q(image + p.blocks_per_head, v_at);
    all.wait();
    load.load_k(image + p.blocks_per_head);
    load.load_dout(image + p.blocks_per_head);
    if (params.dk.data != nullptr)
      add_by_keys(products, dk, base + q_at, square, square.b_rows(0) + own_row * 2);
    products.template finish_copies<1>();
    all.arrive();
    if (params.dk.data != nullptr) load.store(params.dk, image, dk, p.attention.scale);
  }
  put_block_sums(params, with_bias, gate_sums, deltas);
}

}  // namespace sape2::kernels::cuda::head
