#pragma once

#include "kernels/cuda/arch/ldmatrix.cuh"
#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/arch/pdl.cuh"
#include "kernels/cuda/attention_head/distance_bias.cuh"
#include "kernels/cuda/attention_head/forward_tile.cuh"
#include "kernels/cuda/attention_head/kernels.h"
#include "kernels/cuda/attention_head/layout.h"
#include "kernels/cuda/attention_head/lines.cuh"
#include "kernels/cuda/attention_head/lines_saved.cuh"
#include "kernels/cuda/attention_head/logits.cuh"
#include "kernels/cuda/attention_head/plan.cuh"
#include "kernels/cuda/attention_head/products.cuh"
#include "kernels/cuda/attention_head/slots.cuh"
#include "kernels/cuda/attention_head/split_barrier.cuh"
#include "kernels/cuda/common/online_softmax.cuh"
#include "kernels/cuda/common/ref_if.cuh"
#include "kernels/cuda/common/tile.cuh"
#include "kernels/cuda/host/attention_calls.h"
#include "kernels/cuda/host/device.h"
#include "kernels/cuda/host/launch.h"
#include "kernels/cuda/host/params.h"

/// Attention forward, one block per head: both stages, no more memory than inputs and outputs and,
/// where backward profits by them, saved stage 1.
namespace sape2::kernels::cuda::head {

/// The bound from which the compiler works out how many registers a thread may have; a block never
/// has more than kMostWarps.
template <int Size, BiasForm Form, GridKind Grid, bool Backward>
inline constexpr int kHeadThreads = most_warps(Size, Form, Grid, Backward) * 32;

template <class T, int Size, BiasForm Form, GridKind Grid>
__global__ void __launch_bounds__(kHeadThreads<Size, Form, Grid, false>, 1)
    forward_kernel(const __grid_constant__ ForwardParams p) {
  using Steps = ForwardTile<T, Size, Form, Grid>;
  constexpr bool kDistance = kIsDistance<Form>, kAlone = is_alone(Grid, Size);
  extern __shared__ __align__(1024) unsigned char shared[];
  const auto plan = make_plan<Size, Form, Grid, false>(p);
  const auto& l = plan.layout;
  const auto& g = plan.geometry;
  const int first_image = blockIdx.x / g.heads, head = blockIdx.x - first_image * g.heads;
  const Lane lane;
  // Warps that only complete a warpgroup look at the last slots, too, and write nothing.
  const bool works = !kAlone || threadIdx.x / 32 < l.warps;
  const int warp = works ? threadIdx.x / 32 : l.warps - 1, own_row = warp * 16;
  const LdmatrixOffsets<Size> offsets;
  // Distances leave registers for 32 keys at once: too few for a warpgroup to be worth its waits.
  const Products<T, Size, Grid, !kDistance> products{offsets, l.slots, works};
  const Products<T, Size, Grid> stage_products{offsets, l.slots, works};
  const std::uint32_t base = shared_address(shared);
  auto* const tokens = reinterpret_cast<std::int16_t*>(shared + l.tokens);
  float* const values = reinterpret_cast<float*>(shared + l.square + warp * l.scratch);
  const auto lines_of = [&](int slot) {
    return reinterpret_cast<float*>(shared + l.lines + slot / 16 * l.lines_step) +
           slot % 16 * l.line_pitch;
  };
  float* const lines = lines_of(own_row);
  const bool attends = !saves_stage1(Grid, Form, Size) || p.attention.out.data != nullptr;
  unsigned char* const memory = shared;
  list_tokens(plan, tokens);
  SplitBarrier<kAlone> all(shared + l.split_barrier());
  const ForwardLoads<T, Size, Grid> load{
      {p, plan, l, g, memory, tokens, own_row, head, works}, first_image, stage_products, all};
  pdl_wait();
  __syncthreads();
  load.begin();
  bool second = false;  // of the two places
  for (int image = first_image; image < p.images; image += p.blocks_per_head, second = !second) {
    const std::int64_t batch_head = std::int64_t(image) * g.heads + head;
    const int next = image + p.blocks_per_head;
    if (kAlone && next >= p.images) pdl_launch_dependents();
    const KvPlaces at(l, kAlone && second);
    load.begin_image(image);

    const RowsAsA<T, Size> own_q(at_slots<Size>(base + l.q + offsets.a, own_row));
    __syncwarp();
    if constexpr (Form != BiasForm::none) {
      const std::uint32_t keys = base + at.k;
      make_vectors<Form, Grid>(p, plan, own_row, stage_products, head, batch_head, own_q,
                               {base + l.q, keys, keys + offsets.b_rows,
                                at_slots<Size>(keys + offsets.a, own_row), base + l.tables},
                               lines, values,
                               lines_to_save<T, Size, Form, Grid>(p, plan, batch_head, own_row),
                               lines_of, all);
    }
    if constexpr (kDistance) center_vectors<T, Form>(plan, shared, own_row, works, lines_of);
    products.template finish_copies<0>();
    __syncthreads();
    load.load_into_other_places(next, at);

    if (attends) {
      const Logits<T, Form> bias(p, plan, head, lines, l.line_pitch, 1.0F, {0.0F, 0.0F});
      [[maybe_unused]] const bool has_bias[2] = {on_grid(plan, own_row, lane.g),
                                                 on_grid(plan, own_row + 8, lane.g)};
      [[maybe_unused]] CenteredRows<T> centered_rows[kVectorSets<Form>];
      if constexpr (kDistance) read_centered_rows(centered_rows, plan, shared, own_row);
      OnlineSoftmax softmax;
      float out[Size / 8][4] = {};
      const Steps steps{products, own_q,  base,          at.k,     at.v,  bias,    plan,
                        l,        memory, centered_rows, has_bias, works, softmax, out};
      steps.attend_to_all();
      load.leave();
      softmax.finish();
      load.store_result(softmax, out, image);
    } else {
      load.leave();
    }
    all.wait();
    load.load_into_own_places(next, at);
  }
}

/// Calls use(integral_constant) with the compiled head size.
template <class Use>
void dispatch_small_head(int head_size, Use use) {
  if (head_size <= 16) return use(std::integral_constant<int, 16>());
  if (head_size <= 32) return use(std::integral_constant<int, 32>());
  return use(std::integral_constant<int, 64>());
}

/// Calls use(integral_constant) with the form.
template <class Use>
void dispatch_form(BiasForm form, Use use) {
  switch (form) {
    case BiasForm::none:
      return use(std::integral_constant<BiasForm, BiasForm::none>());
    case BiasForm::direct:
      return use(std::integral_constant<BiasForm, BiasForm::direct>());
    case BiasForm::distance:
      return use(std::integral_constant<BiasForm, BiasForm::distance>());
    case BiasForm::distance_pair:
      return use(std::integral_constant<BiasForm, BiasForm::distance_pair>());
  }
}

template <class T>
void forward(const ForwardParams& p, BiasForm form, cudaStream_t stream) {
  const auto& g = p.attention.geometry;
  dispatch_small_head(g.head_size, [&](auto size) {
    dispatch_form(form, [&](auto compiled) {
      constexpr int kSize = decltype(size)::value;
      constexpr BiasForm kForm = decltype(compiled)::value;
      dispatch_grid<kSize, kForm>(p, [&](auto grid) {
        launch(forward_kernel<T, kSize, kForm, decltype(grid)::value>,
               std::int64_t(p.blocks_per_head) * g.heads, {.overlapping = true},
               threads_of(decltype(grid)::value, kSize, p.layout, is_sm90a()), p.layout.bytes,
               stream, p);
      });
    });
  });
}

}  // namespace sape2::kernels::cuda::head
