#pragma once

#include "kernels/cuda/arch/ldmatrix.cuh"
#include "kernels/cuda/arch/mma.cuh"
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
#include "kernels/cuda/host/params.h"

/// The steps of attention forward, one block per head (forward.cuh).
namespace sape2::kernels::cuda::head {

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

/// Where an image has its keys and values, and the next one: in the other of two places, or there
/// too.
struct KvPlaces {
  int k, next_k, v, next_v;

  __device__ KvPlaces(const Layout& l, bool second)
      : k(l.k + (second ? l.k_step : 0)),
        next_k(l.k + (second ? 0 : l.k_step)),
        v(l.v + (second ? l.v_step : 0)),
        next_v(l.v + (second ? 0 : l.v_step)) {}
};

/// What a block copies of an image, and writes of its results. A block that is alone starts an
/// image's copies as early as the image before lets it, which needs q no longer once there are
/// vectors, k and v only if the next ones have no other place.
template <class T, int Size, GridKind Grid>
struct ForwardLoads : HeadTokens<T, Size, Grid> {
  static constexpr bool kAlone = is_alone(Grid, Size);
  using Tokens = HeadTokens<T, Size, Grid>;
  using Tokens::own_row, Tokens::head, Tokens::works;
  using Tokens::p, Tokens::plan, Tokens::l, Tokens::g, Tokens::shared, Tokens::tokens;
  using typename Tokens::Copies;
  const int& first_image;
  const Products<T, Size, Grid>& stage_products;
  SplitBarrier<kAlone>& all;

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
  __device__ void begin() const {
    if constexpr (!kAlone) return;
    load_image(first_image);
    finish_q_k();
  }
  __device__ void begin_image(int image) const {
    if constexpr (kAlone) return;
    load_image(image);
    finish_q_k();
  }
  __device__ void load_into_other_places(int next, const KvPlaces& at) const {
    if constexpr (!kAlone) return;
    const Copies copies(plan, tokens, own_row);
    if (l.k_step > 0) load_q_k(copies, next, at.next_k);
    if (l.v_step > 0) load_v(copies, next, at.next_v);
  }
  __device__ void load_into_own_places(int next, const KvPlaces& at) const {
    if constexpr (!kAlone) return;
    const Copies copies(plan, tokens, own_row);
    if (l.k_step == 0) load_q_k(copies, next, at.next_k);
    if (l.v_step == 0) load_v(copies, next, at.next_v);
    if (l.k_step == 0) finish_q_k();
  }
  /// Others may have this image's places, and this warp needs what they have copied for the next.
  __device__ void leave() const {
    if constexpr (!kAlone) return;
    if (l.k_step > 0 && l.v_step > 0) stage_products.template finish_copies<1>();
    if (l.k_step > 0 && l.v_step == 0) stage_products.template finish_copies<0>();
    all.arrive();
  }
  /// And what backward needs of its softmax.
  __device__ void store_result(const OnlineSoftmax& softmax, const float (&out)[Size / 8][4],
                               int image) const {
    const Lane lane;
    const std::int64_t batch_head = std::int64_t(image) * g.heads + head;
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
  }
};

/// The distance form's vectors, rounded where all warps can read them.
template <class T, BiasForm Form, class LinesOf>
__device__ void center_vectors(const Plan& plan, unsigned char* shared, int own_row, bool works,
                               LinesOf lines_of) {
  const auto& l = plan.layout;
  __syncthreads();
#pragma unroll
  for (int set = 0; set < kVectorSets<Form>; ++set)
    if (works)
      CenteredVectors<T>(l, shared, set).make(l, plan.geometry, own_row, [&](int slot) {
        return lines_of(slot) + set * 16 * l.line_pitch;
      });
}
/// Of the warp's own queries.
template <class T, int Sets>
__device__ void read_centered_rows(CenteredRows<T> (&rows)[Sets], const Plan& plan,
                                   unsigned char* shared, int own_row) {
#pragma unroll
  for (int set = 0; set < Sets; ++set)
    rows[set].begin(CenteredVectors<T>(plan.layout, shared, set), own_row);
}

/// The steps from scores to the result, some sixteens of keys at a time.
template <class T, int Size, BiasForm Form, GridKind Grid>
struct ForwardTile {
  static constexpr bool kDistance = kIsDistance<Form>;
  static constexpr int kSets = kVectorSets<Form>;
  // Sixteens of keys whose logits are held at once.
  static constexpr int kMost = kDistance || (Size == 64 && is_small(Grid)) ? 2 : 4;
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
  __device__ void attend_to_all() const {
    const int slots = plan.layout.slots;
    int first = 0;
#pragma unroll 1
    for (; first + 16 * kMost <= slots; first += 16 * kMost)
      attend(first, std::integral_constant<int, kMost>());
    if (kMost > 2 && first + 32 <= slots) {
      attend(first, std::integral_constant<int, 2>());
      first += 32;
    }
    if (first < slots) attend(first, std::integral_constant<int, 1>());
  }
};

}  // namespace sape2::kernels::cuda::head
