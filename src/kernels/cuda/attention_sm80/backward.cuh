#pragma once

#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/arch/wgmma.cuh"
#include "kernels/cuda/attention_sm80/backward_tile.cuh"
#include "kernels/cuda/attention_sm80/bias.cuh"
#include "kernels/cuda/attention_sm80/block.cuh"
#include "kernels/cuda/attention_sm80/columns.cuh"
#include "kernels/cuda/attention_sm80/distance_bias.cuh"
#include "kernels/cuda/attention_sm80/kernels.h"
#include "kernels/cuda/attention_sm80/smem.h"
#include "kernels/cuda/common/element.cuh"
#include "kernels/cuda/common/softmax_delta.cuh"
#include "kernels/cuda/common/tile.cuh"
#include "kernels/cuda/host/launch.h"
#include "kernels/cuda/host/params.h"

/// Attention backward in two passes over recomputed tiles. With queries along the rows a block
/// gathers dq, the vectors' gradients and dgain; with keys along the rows it gathers dk, dv and,
/// for distances, the vectors' other half. Each output has one owner: no atomics, one order of
/// sums.
namespace sape2::kernels::cuda::sm80 {

template <class T, int HeadSize, BiasForm Form>
inline constexpr int kBackwardBlocks = kIsFp32<T> || HeadSize > 64 ? 1
                                       : kIsDistance<Form>         ? 2
                                                                   : 3;

template <class T, int HeadSize, BiasForm Form, bool KeysAlongRows>
__global__ void __launch_bounds__(kThreads, kBackwardBlocks<T, HeadSize, Form>)
    backward_kernel(const __grid_constant__ AttentionBackwardParams params) {
  using Steps = BackwardTile<T, HeadSize, Form, KeysAlongRows>;
  constexpr int kColumns = kBackwardColumns, kN8 = Steps::kN8, kOutN8 = HeadSize / 8;
  constexpr bool kDistance = kIsDistance<Form>;
  extern __shared__ unsigned char shared[];

  const AttentionParams& p = params.forward;
  const auto& g = p.geometry;
  const Lane lane;
  const BlockRows block(g, lane);
  // Long vectors' gradients are made 64 entries and one set at a time; only the first block of a
  // row of tiles writes the rest.
  const bool first_part = blockIdx.y == 0;
  const int set = blockIdx.y % p.vectors.sets, first_entry = blockIdx.y / p.vectors.sets * 64;

  const BackwardSmem<T, HeadSize, Form, KeysAlongRows> smem{aligned_shared(shared)};
  const Tile<T> a = smem.a(), da = smem.da();
  const TilePair<T> b = smem.b(), db = smem.db();
  float* const scratch = smem.scratch();
  const typename Steps::Columns columns(g);
  const ColumnTokens<typename Steps::Columns, kColumns> tokens(columns, smem.tokens());

  const BackwardInputs<T> in(params, block);
  BiasOf<T, kN8, Form, KeysAlongRows> bias(p, block.batch_head, block.first_row, block.row,
                                           smem.bias());

  float3 own_rows[2];
  const float scale = p.scale;
  float bias_factor = 0.0F;
  if constexpr (Form != BiasForm::none)
    bias_factor = per_head(p.gain, block.head, 1.0F) * (p.inside ? p.scale : 1.0F);
  float with_bias = 0.0F;  // this lane's share of Σ gradient of the logit · bias
  float d_a[kOutN8][4] = {};
  float d_da[KeysAlongRows ? kOutN8 : 1][4] = {};
  [[maybe_unused]] DistanceGradient<T, kN8> centered_gradient[kDistance ? 2 : 1];
  [[maybe_unused]] DirectRowGradients<T, kN8> direct_gradient(params, block.batch_head, block.row,
                                                              bias_factor);
  const Steps steps{params,         block,       lane,
                    columns,        tokens,      in,
                    smem,           own_rows,    bias,
                    scale,          bias_factor, set,
                    first_entry,    with_bias,   centered_gradient,
                    direct_gradient};

  steps.load_rows_of_block();
  steps.load(0);
  if constexpr (!KeysAlongRows) {
    rows_delta<T, HeadSize>(params, block.image, block.head, block.first_row, scratch);
    __syncthreads();
    steps.read_own_rows(scratch, first_part);
  }
  const int tiles = tokens.tiles;
  for (int tile = 0; tile < tiles; ++tile) {
    steps.finish_load(tile);
    [[maybe_unused]] const auto place = columns.place(tile);
    const int buffer = tile % 2;
    float weight[kN8][4];
    [[maybe_unused]] float inverse[kDistance ? 2 : 1][kN8][4];
    [[maybe_unused]] float distance[kDistance ? kN8 : 1][4];
    row_product<HeadSize>(weight, a, b[buffer]);
    steps.prepare_bias(weight, distance, inverse, tile, place);
    steps.make_weights(weight, distance, buffer);
    if constexpr (!KeysAlongRows) steps.mask(weight, tile, place);

    float gradient[kN8][4];
    row_product<HeadSize>(gradient, da, db[buffer]);
    if constexpr (KeysAlongRows) add_column_product<T>(d_da, weight, db[buffer]);
    steps.make_gradients(gradient, weight, distance, buffer);
    add_column_product<T>(d_a, gradient, b[buffer]);
    steps.add_to_vectors(gradient, inverse, tile, place);
    __syncthreads();
  }

  if constexpr (kDistance) steps.store_vectors();
  if (!first_part) return;
  store_rows<T>(KeysAlongRows ? params.dk : params.dq, g, block, d_a, p.scale);
  if constexpr (KeysAlongRows) store_rows<T>(params.dv, g, block, d_da, 1.0F);
  if constexpr (!KeysAlongRows && Form != BiasForm::none) store_gain(params, with_bias, scratch);
}

template <class T, int HeadSize, BiasForm Form>
void launch_backward(const AttentionBackwardParams& p, cudaStream_t stream) {
  const auto& g = p.forward.geometry;
  const auto& v = p.forward.vectors;
  const std::int64_t blocks = g.batch_heads * (g.padded_tokens / kRowTile);
  const int width = v.width_x > v.width_y ? v.width_x : v.width_y;
  const int parts = kIsDistance<Form> ? v.sets * ((width + 63) / 64) : 1;
  const SmemSizes sizes{sizeof(T), HeadSize, Form, v.width_x, v.width_y};
  launch(backward_kernel<T, HeadSize, Form, false>, blocks, parts, kThreads,
         backward_smem_bytes(sizes, false), stream, p);
  launch(backward_kernel<T, HeadSize, Form, true>, blocks, parts, kThreads,
         backward_smem_bytes(sizes, true), stream, p);
}

template <class T>
void backward(const AttentionBackwardParams& p, BiasForm form, cudaStream_t stream,
              const BackwardContinuation& continuation) {
  dispatch_head_size<T>(p.forward.geometry.head_size, [&](auto size) {
    constexpr int kSize = decltype(size)::value;
    switch (form) {
      case BiasForm::none:
        return launch_backward<T, kSize, BiasForm::none>(p, stream);
      case BiasForm::direct:
        return launch_backward<T, kSize, BiasForm::direct>(p, stream);
      case BiasForm::distance:
        return launch_backward<T, kSize, BiasForm::distance>(p, stream);
      case BiasForm::distance_pair:
        return launch_backward<T, kSize, BiasForm::distance_pair>(p, stream);
    }
  });
  const bool distance = form == BiasForm::distance || form == BiasForm::distance_pair;
  if (continuation.from) continuation.from({.fp32 = distance, .before_keys = false});
}

}  // namespace sape2::kernels::cuda::sm80
