#pragma once

#include "kernels/cuda/head_logits.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/softmax.cuh"

/// Attention forward, a head a block: both stages, no more memory than inputs and outputs.
namespace sape2::kernels::cuda {

/// The bound from which the compiler works out how many registers a thread may have; a block never
/// has more than kHeadMostWarps.
template <int Size, BiasForm Form, HeadGrid Grid, bool Backward>
inline constexpr int kHeadThreads = head_warps(Size, Form, Grid, Backward) * 32;

template <class T, int Size, BiasForm Form, HeadGrid Grid>
__global__ void __launch_bounds__(kHeadThreads<Size, Form, Grid, false>, 1)
    head_forward_kernel(const __grid_constant__ HeadForward p) {
  constexpr bool kDistance = kIsDistance<Form>;
  constexpr int kSets = kHeadSets<Form>;
  // Eights of keys whose logits are held at once.
  constexpr int kChunk = kDistance || (Size == 64 && is_small(Grid)) ? 4 : 8;
  constexpr int kRow = kRowBytes<Size>;
  extern __shared__ __align__(128) unsigned char shared[];
  const auto plan = head_plan<Size, Form, Grid, false>(p);
  const auto& l = plan.layout;
  const auto& g = plan.geometry;
  const int turn = blockIdx.x / g.heads, head = blockIdx.x - turn * g.heads;
  const Lane lane;
  const int warp = threadIdx.x / 32, own_row = warp * 16;
  const LanePlaces<Size> places;
  const std::uint32_t base = shared_address(shared);
  const std::uint32_t keys = base + l.k + places.b_rows, values_at = base + l.v + places.b_columns;
  auto* const tokens = reinterpret_cast<std::int16_t*>(shared + l.tokens);
  float* const values = reinterpret_cast<float*>(shared + l.square + warp * l.scratch);
  const auto lines_of = [&](int slot) {
    return reinterpret_cast<float*>(shared + l.lines + slot / 16 * l.lines_step) +
           slot % 16 * l.line_pitch;
  };
  float* const lines = lines_of(own_row);

  note_tokens(plan, tokens);
  __syncthreads();
  for (int image = turn; image < p.images; image += p.turns) {
    const std::int64_t batch_head = std::int64_t(image) * g.heads + head;
    {
      const SlotCopies<T, Size> copies(plan, tokens, own_row);
      copies.start(shared + l.q, head_of<T>(p.attention.q, image, head), g);
      copies.start(shared + l.k, head_of<T>(p.attention.k, image, head), g);
      commit_copies();
      copies.start(shared + l.v, head_of<T>(p.attention.v, image, head), g);
      commit_copies();
    }
    if (plan.has_tables && image == turn) load_tables<T, Size>(p, plan, head, shared + l.tables);
    wait_for_copies<1>();
    __syncthreads();

    const RowsAsA<T, Size> own_q(base + l.q + own_row * kRow + places.a);
    __syncwarp();
    if constexpr (Form != BiasForm::none) {
      make_vectors<false, Form, Grid>(
          p, plan, own_row, head, batch_head, own_q,
          {base + l.q, base + l.k, keys, base + l.k + own_row * kRow + places.a,
           base + l.tables + places.b_rows},
          lines, values, {}, lines_of);
      if constexpr (kDistance) {
        __syncthreads();
#pragma unroll
        for (int set = 0; set < kSets; ++set)
          HeadNear<T>(l, shared, set).make(l, g, own_row, [&](int slot) {
            return lines_of(slot) + set * 16 * l.line_pitch;
          });
      }
    }
    wait_for_copies<0>();
    __syncthreads();

    const HeadLogits<T, Form> bias(p, plan, head, lines, 1.0F, {0.0F, 0.0F});
    [[maybe_unused]] const bool has_bias[2] = {on_grid(plan, own_row, lane.g),
                                               on_grid(plan, own_row + 8, lane.g)};
    [[maybe_unused]] NearRows<T> near_rows[kSets];
    if constexpr (kDistance) {
#pragma unroll
      for (int set = 0; set < kSets; ++set)
        near_rows[set].begin(HeadNear<T>(l, shared, set), own_row);
    }
    OnlineSoftmax softmax;
    float out[Size / 8][4] = {};
#pragma unroll 1
    for (int first = 0; first < l.slots; first += kChunk * 8) {
      float logits[kChunk][4];
#pragma unroll
      for (int piece = 0; piece < kChunk; piece += 2) {
        const int slot = first + piece * 8;
        auto& pair = reinterpret_cast<float(&)[2][4]>(logits[piece]);
        if (slot < l.slots) {
          multiply(pair, own_q, keys + slot * kRow);
          bias.make(pair, plan, slot);
          if constexpr (kDistance) {
#pragma unroll
            for (int set = 0; set < kSets; ++set)
              bias.add_distances(pair, plan, HeadNear<T>(l, shared, set), near_rows[set], has_bias,
                                 slot);
          }
          bias.make_beside(pair, plan, own_q, keys, slot);
        } else {
#pragma unroll
          for (int e = 0; e < 8; ++e) pair[e / 4][e % 4] = -INFINITY;
        }
      }
      softmax.update(logits, out);
#pragma unroll
      for (int piece = 0; piece < kChunk; piece += 2)
        if (first + piece * 8 < l.slots)
          multiply_add_columns<T>(out, as_a<T>(logits[piece], logits[piece + 1]),
                                  values_at + (first + piece * 8) * kRow);
    }
    softmax.finish();
    if (p.attention.softmax != nullptr && lane.t == 0) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int token = token_of(plan, tokens, own_row + lane.g + 8 * half);
        if (token >= 0)
          p.attention.softmax[batch_head * g.tokens + token] = {softmax.maximum[half],
                                                                softmax.sum[half]};
      }
    }
    store_slots(head_of<T>(p.attention.out, image, head), out, tokens, own_row,
                {1.0F / softmax.sum[0], 1.0F / softmax.sum[1]}, plan);
    __syncthreads();
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
void head_attention_forward(const HeadForward& p, BiasForm form, cudaStream_t stream) {
  const auto& g = p.attention.geometry;
  dispatch_small_head(g.head_size, [&](auto size) {
    dispatch_form(form, [&](auto compiled) {
      constexpr int kSize = decltype(size)::value;
      constexpr BiasForm kForm = decltype(compiled)::value;
      dispatch_grid<kSize, kForm>(p, [&](auto grid) {
        launch(head_forward_kernel<T, kSize, kForm, decltype(grid)::value>,
               std::int64_t(p.turns) * g.heads, 1, p.layout.warps * 32, p.layout.bytes, stream, p);
      });
    });
  });
}

}  // namespace sape2::kernels::cuda
