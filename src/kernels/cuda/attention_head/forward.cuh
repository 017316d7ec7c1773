#pragma once

#include "kernels/cuda/arch/ldmatrix.cuh"
#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/arch/pdl.cuh"
#include "kernels/cuda/attention_head/distance_bias.cuh"
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

/// What takes the lines that backward will need.
template <class T, int Size, BiasForm Form, GridKind Grid>
__device__ auto lines_to_save(const ForwardParams& p, const Plan& plan, std::int64_t batch_head,
                              int own_row) {
  if constexpr (saves_stage1(Grid, Form, Size)) {
    return LineToSave<T, longest_line(Grid)>{p.saved, {p.saved, plan, Grid, batch_head, own_row}};
  } else if constexpr (Grid == GridKind::any && Form == BiasForm::direct) {
    return RoundingToo<T, EntriesToSave<T>>{
        {p.saved, {p.saved, plan, p.layout.grid, batch_head, own_row}},
        saves_stage1(p.layout.grid, Form, plan.geometry.head_size)};
  } else {
    return NothingToSave();
  }
}

/// What a block copies of an image.
template <class T, int Size, GridKind Grid>
struct ForwardLoads : HeadTokens<T, Size, Grid> {
  using Tokens = HeadTokens<T, Size, Grid>;
  using Tokens::own_row, Tokens::head, Tokens::works;
  using Tokens::p, Tokens::plan, Tokens::l, Tokens::g, Tokens::shared, Tokens::tokens;
  using typename Tokens::Copies;
  const int& first_image;
  const Products<T, Size, Grid>& stage_products;

  __device__ void load_q_k(const Copies& copies, int image, int k) const {
    if (works && image < p.images) {
      copies.start(shared + l.q, head_of<T>(p.attention.q, image, head), g);
      copies.start(shared + k, head_of<T>(p.attention.k, image, head), g);
    }
    cp_async_commit();
  }
  __device__ void load_v(const Copies& copies, int image, int v) const {
    if (works && image < p.images)
      copies.start(shared + v, head_of<T>(p.attention.v, image, head), g);
    cp_async_commit();
  }
  __device__ void load_image(int image) const {
    const Copies copies(plan, tokens, own_row);
    load_q_k(copies, image, l.k);
    // Before v, behind which they would come.
    if (plan.has_tables && image == first_image)
      load_tables<T, Size>(p, plan, head, shared + l.tables);
    load_v(copies, image, l.v);
  }
  __device__ void finish_q_k() const {
    stage_products.template finish_copies<1>();
    __syncthreads();
  }
};

/// The steps from scores to the result, some sixteens of keys at a time.
template <class T, int Size, BiasForm Form, GridKind Grid>
struct ForwardTile {
  static constexpr bool kDistance = kIsDistance<Form>;
  static constexpr int kSets = kVectorSets<Form>;
  using AttentionProducts = Products<T, Size, Grid, !kDistance>;
  const AttentionProducts& products;
  const RowsAsA<T, Size>& own_q;
  const std::uint32_t& base;
  const int &k, &v;
  const Logits<T, Form>& bias;
  const Plan& plan;
  RefIf<const Layout, kDistance> l;
  RefIf<unsigned char* const, kDistance> shared;
  RefIf<const CenteredRows<T>[kSets], kDistance> centered_rows;
  RefIf<const bool[2], kDistance> has_bias;
  const bool& works;
  OnlineSoftmax& softmax;
  float (&out)[Size / 8][4];

  /// Scores become logits.
  __device__ void add_bias(float (&c)[2][4], int slot) const {
    const auto beside = bias.logits_beside(c, plan, slot);
    bias.make(c, plan, slot);
    if constexpr (kDistance) {
#pragma unroll
      for (int set = 0; set < kSets; ++set)
        bias.add_distances(c, plan, CenteredVectors<T>(l.to, shared.to, set), centered_rows.to[set],
                           has_bias.to, slot);
    }
    bias.put_beside(c, plan, slot, beside);
  }
  /// `Count`: sixteens of keys from slot `first` on.
  template <class Count>
  __device__ void attend(int first, Count) const {
    constexpr int kCount = Count::value, kAtOnce = AttentionProducts::kByWarpgroups ? kCount : 1;
    float logits[2 * kCount][4];
#pragma unroll
    for (int n = 0; n < kCount; n += kAtOnce) {
      products.multiply_rows(reinterpret_cast<float(&)[kAtOnce][2][4]>(logits[2 * n]), own_q,
                             base + k, first + 16 * n);
#pragma unroll
      for (int m = n; m < n + kAtOnce; ++m)
        add_bias(reinterpret_cast<float(&)[2][4]>(logits[2 * m]), first + 16 * m);
    }
    if (works) softmax.update(logits, out);
#pragma unroll
    for (int n = 0; n < kCount; n += kAtOnce) {
      FragmentA<T> weights[kAtOnce];
#pragma unroll
      for (int m = 0; m < kAtOnce; ++m)
        weights[m] = as_a<T>(logits[2 * (n + m)], logits[2 * (n + m) + 1]);
      products.add_columns(out, weights, base + v, first + 16 * n);
    }
  }
};

template <class T, int Size, BiasForm Form, GridKind Grid>
__global__ void __launch_bounds__(kHeadThreads<Size, Form, Grid, false>, 1)
    forward_kernel(const __grid_constant__ ForwardParams p) {
  constexpr bool kDistance = kIsDistance<Form>, kAlone = is_alone(Grid, Size);
  constexpr int kSets = kVectorSets<Form>;
  // Sixteens of keys whose logits are held at once.
  constexpr int kMost = kDistance || (Size == 64 && is_small(Grid)) ? 2 : 4;
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
  const ForwardLoads<T, Size, Grid> load{
      {p, plan, l, g, memory, tokens, own_row, head, works}, first_image, stage_products};
  list_tokens(plan, tokens);
  SplitBarrier<kAlone> all(shared + l.split_barrier());
  pdl_wait();
  __syncthreads();
  if constexpr (kAlone) {
    load.load_image(first_image);
    load.finish_q_k();
  }
  // A block that is alone starts an image's copies as early as the image before lets it, which
  // needs q no longer once there are vectors, k and v only if the next ones have no other place.
  bool second = false;  // of the two places
  for (int image = first_image; image < p.images; image += p.blocks_per_head, second = !second) {
    const std::int64_t batch_head = std::int64_t(image) * g.heads + head;
    const int next = image + p.blocks_per_head;
    if (kAlone && next >= p.images) pdl_launch_dependents();
    const bool other = kAlone && second;
    const int k = l.k + (other ? l.k_step : 0), next_k = l.k + (other ? 0 : l.k_step);
    const int v = l.v + (other ? l.v_step : 0), next_v = l.v + (other ? 0 : l.v_step);
    const std::uint32_t keys = base + k + offsets.b_rows;
    if constexpr (!kAlone) {
      load.load_image(image);
      load.finish_q_k();
    }
    // Others may have this image's places, and this warp needs what they have copied for the next.
    const auto leave = [&] {
      if constexpr (!kAlone) return;
      if (l.k_step > 0 && l.v_step > 0) stage_products.template finish_copies<1>();
      if (l.k_step > 0 && l.v_step == 0) stage_products.template finish_copies<0>();
      all.arrive();
    };

    const RowsAsA<T, Size> own_q(at_slots<Size>(base + l.q + offsets.a, own_row));
    __syncwarp();
    if constexpr (Form != BiasForm::none) {
      make_vectors<Form, Grid>(p, plan, own_row, stage_products, head, batch_head, own_q,
                               {base + l.q, base + k, keys,
                                at_slots<Size>(base + k + offsets.a, own_row), base + l.tables},
                               lines, values,
                               lines_to_save<T, Size, Form, Grid>(p, plan, batch_head, own_row),
                               lines_of, all);
      if constexpr (kDistance) {
        __syncthreads();
#pragma unroll
        for (int set = 0; set < kSets; ++set)
          if (works)
            CenteredVectors<T>(l, shared, set).make(l, g, own_row, [&](int slot) {
              return lines_of(slot) + set * 16 * l.line_pitch;
            });
      }
    }
    products.template finish_copies<0>();
    __syncthreads();
    if constexpr (kAlone) {
      const SlotCopies<T, Size, Grid> copies(plan, tokens, own_row);
      if (l.k_step > 0) load.load_q_k(copies, next, next_k);
      if (l.v_step > 0) load.load_v(copies, next, next_v);
    }

    if (attends) {
      const Logits<T, Form> bias(p, plan, head, lines, l.line_pitch, 1.0F, {0.0F, 0.0F});
      [[maybe_unused]] const bool has_bias[2] = {on_grid(plan, own_row, lane.g),
                                                 on_grid(plan, own_row + 8, lane.g)};
      [[maybe_unused]] CenteredRows<T> centered_rows[kSets];
      if constexpr (kDistance) {
#pragma unroll
        for (int set = 0; set < kSets; ++set)
          centered_rows[set].begin(CenteredVectors<T>(l, shared, set), own_row);
      }
      OnlineSoftmax softmax;
      float out[Size / 8][4] = {};
      const ForwardTile<T, Size, Form, Grid> steps{products, own_q, base,    k,      v,
                                                   bias,     plan,  l,       memory, centered_rows,
                                                   has_bias, works, softmax, out};
      int first = 0;
#pragma unroll 1
      for (; first + 16 * kMost <= l.slots; first += 16 * kMost)
        steps.attend(first, std::integral_constant<int, kMost>());
      if (kMost > 2 && first + 32 <= l.slots) {
        steps.attend(first, std::integral_constant<int, 2>());
        first += 32;
      }
      if (first < l.slots) steps.attend(first, std::integral_constant<int, 1>());
      leave();
      softmax.finish();
      if (p.attention.softmax != nullptr && lane.t == 0 && works) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int token = token_of(plan, tokens, own_row, lane.g + 8 * half);
          if (token >= 0)
            p.attention.softmax[batch_head * g.tokens + token] = {softmax.maximum[half],
                                                                  softmax.sum[half]};
        }
      }
      if (works)
        store_slots(head_of<T>(p.attention.out, image, head), out, tokens, own_row,
                    {1.0F / softmax.sum[0], 1.0F / softmax.sum[1]}, plan);
    } else {
      leave();
    }
    all.wait();
    if constexpr (kAlone) {
      const SlotCopies<T, Size, Grid> copies(plan, tokens, own_row);
      if (l.k_step == 0) load.load_q_k(copies, next, next_k);
      if (l.v_step == 0) load.load_v(copies, next, next_v);
      if (l.k_step == 0) load.finish_q_k();
    }
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
