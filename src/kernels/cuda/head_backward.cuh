#pragma once

#include "kernels/cuda/head_forward.cuh"
#include "kernels/cuda/head_gradients.cuh"

/// Attention backward, a head a block. Weights, and then the logits' gradients in their place, fill
/// a square of 16-bit numbers in shared memory; a warp reads its rows of it as queries, its columns
/// as keys. Every output has one owner: no atomics, one order of sums.
namespace sape2::kernels::cuda {

/// Of this lane's two queries: maximum · log2(e) and 1/sum; a slot without a token has weights 0.
struct QueryRows {
  float maximum[2], inverse[2];

  __device__ QueryRows(const SoftmaxRow* softmax, const std::int16_t* tokens, int own_row) {
    const Lane lane;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int token = tokens[own_row + lane.g + 8 * half];
      const SoftmaxRow row = token < 0 ? SoftmaxRow{INFINITY, 1.0F} : softmax[token];
      maximum[half] = row.maximum * kLog2E;
      inverse[half] = 1.0F / row.sum;
    }
  }
};

template <class T, int Size, BiasForm Form>
__global__ void __launch_bounds__(kHeadMostThreads, 1)
    head_backward_kernel(const __grid_constant__ HeadBackward params) {
  constexpr bool kDirect = Form == BiasForm::direct, kDistance = kIsDistance<Form>;
  constexpr int kSets = kHeadSets<Form>, kPieces = Size / 8;
  extern __shared__ __align__(128) unsigned char shared[];
  const HeadForward& p = params.forward;
  const auto& l = p.layout;
  const auto& g = p.attention.geometry;
  const int turn = blockIdx.x / g.heads, head = blockIdx.x - turn * g.heads;
  const Lane lane;
  const int in_warp = threadIdx.x % 32;
  const OwnSlots own(l);
  const Tile<T> q{shared + l.q, l.slots, Size}, k{shared + l.k, l.slots, Size};
  const Tile<T> v{shared + l.v, l.slots, Size}, dout{shared + l.dout, l.slots, Size};
  const Square<T> square{shared + l.square, l.square_pitch};
  auto* const tokens = reinterpret_cast<std::int16_t*>(shared + l.tokens);
  float* const deltas = reinterpret_cast<float*>(shared + l.deltas);
  float* const values = reinterpret_cast<float*>(square.piece(own.first, 0));
  // Vectors: the direct form's stay, the distance form's live until they are rounded. Gradients of
  // vectors, one set behind the other.
  float* const vectors =
      kDistance ? values + 16 * l.value_pitch
                : reinterpret_cast<float*>(shared + l.lines) + own.first * l.line_pitch;
  float* const lines =
      reinterpret_cast<float*>(shared + l.lines) + kSets * own.first * l.line_pitch;
  const int longest = max(g.rows, g.cols);
  const KeptLine kept{params.kept == nullptr ? nullptr
                                             : params.kept +
                                                   (std::int64_t(blockIdx.x) * l.warps + own.warp) *
                                                       longest * (kHeadKept + kSets) * 32 +
                                                   in_warp,
                      kHeadKept + kSets};

  note_tokens(l, g, tokens);
  if (p.has_tables) load_tables<T, Size>(p, head, shared + l.tables);
  __syncthreads();
  const float factor = Form == BiasForm::none ? 0.0F
                                              : per_head(p.attention.gain, head, 1.0F) *
                                                    (p.attention.inside ? p.attention.scale : 1.0F);
  float with_bias = 0.0F;
  GateSums gate_sums;
  for (int image = turn; image < p.images; image += p.turns) {
    const std::int64_t batch_head = std::int64_t(image) * g.heads + head;
    const auto store = [&](const View& view, const float(&result)[kPieces][4], float times) {
      if (view.data == nullptr) return;
      const auto to = head_of<T>(view, image, head);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int token = tokens[own.first + lane.g + 8 * half];
        if (token >= 0) store_row(to.row(token), result, half, times, g.head_size, g.aligned);
      }
    };
    load_slots<Size>(q, head_of<T>(p.attention.q, image, head), tokens, g);
    load_slots<Size>(k, head_of<T>(p.attention.k, image, head), tokens, g);
    load_slots<Size>(dout, head_of<T>(params.dout, image, head), tokens, g);
    commit_copies();
    if (!l.reload) load_slots<Size>(v, head_of<T>(p.attention.v, image, head), tokens, g);
    commit_copies();
    const QueryRows rows(p.attention.softmax + batch_head * g.tokens, tokens, own.first);
    const RowsDelta<T, Size> out_rows(head_of<T>(params.out, image, head), tokens, g, own.first);
    wait_for_copies<1>();
    __syncthreads();
    out_rows.finish(dout, own.first, deltas);

    // Weights.
    {
      const RowsAsA<T, Size> own_q(q, own.first);
      if constexpr (Form != BiasForm::none)
        make_vectors<true, T, Size, Form>(p, own, head, batch_head, own_q, k, shared, vectors,
                                          values, kept);
      if (kDistance || l.reload) __syncthreads();
      if (l.reload) {
        load_slots<Size>(v, head_of<T>(p.attention.v, image, head), tokens, g);
        commit_copies();
      }
      if constexpr (kDistance) {
#pragma unroll
        for (int set = 0; set < kSets; ++set)
          HeadNear<T>(l, shared, set).make(l, g, own, [&](int slot) {
            return reinterpret_cast<const float*>(square.piece(slot / 16 * 16, 0)) +
                   16 * l.value_pitch + (set * 16 + slot % 16) * l.line_pitch;
          });
        __syncthreads();
      }
      const HeadLogits<T, Form> bias(p, own, head, vectors);
#pragma unroll 2
      for (int slot = 0; slot < l.slots; slot += 16) {
        float c[2][4];
        multiply(c, own_q, k, slot);
        bias.make(c, p, own, slot, vectors, shared);
#pragma unroll
        for (int piece = 0; piece < 2; ++piece)
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const float a = relative_weight(c[piece][2 * half], rows.maximum[half]);
            const float b = relative_weight(c[piece][2 * half + 1], rows.maximum[half]);
            *reinterpret_cast<std::uint32_t*>(
                &square.at(own.first + lane.g + 8 * half, slot + 8 * piece + 2 * lane.t)) =
                pack<T>(a * rows.inverse[half], b * rows.inverse[half]);
          }
      }
    }
    wait_for_copies<0>();
    __syncthreads();

    // dv = weightsᵀ · dout.
    if (params.dv.data != nullptr) {
      float dv[kPieces][4] = {};
#pragma unroll 2
      for (int slot = 0; slot < l.slots; slot += 16)
        multiply_add_columns<T>(dv, load_a_columns<T>(square, slot, own.first), dout, slot);
      store(params.dv, dv, 1.0F);
    }
    __syncthreads();

    // The logits' gradients.
    {
      const RowsAsA<T, Size> own_dout(dout, own.first);
      const float delta[2] = {deltas[own.first + lane.g], deltas[own.first + lane.g + 8]};
      [[maybe_unused]] DirectSums sums;
#pragma unroll 2
      for (int slot = 0; slot < l.slots; slot += 16) {
        float c[2][4];
        multiply(c, own_dout, v, slot);
        const auto weights = load_a(square, own.first, slot);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float2 weight = unpack<T>(weights.r[i]);
          const int piece = i / 2, half = i % 2;
          c[piece][2 * half] = weight.x * (c[piece][2 * half] - delta[half]);
          c[piece][2 * half + 1] = weight.y * (c[piece][2 * half + 1] - delta[half]);
          *reinterpret_cast<std::uint32_t*>(
              &square.at(own.first + lane.g + 8 * half, slot + 8 * piece + 2 * lane.t)) =
              pack<T>(c[piece][2 * half], c[piece][2 * half + 1]);
        }
        if constexpr (kDirect) with_bias += sums.add(c, l, slot, factor, lines);
      }
      if constexpr (kDirect) with_bias += sums.finish(l, g.cols, factor, lines);
    }
    // From here on nobody needs v and dout.
    __syncthreads();
    if (l.reload) {
      load_slots<Size>(q, head_of<T>(p.attention.q, image, head), tokens, g);
      commit_copies();
    }

    // Gradients of vectors, then of table values and gates.
    const auto bins_of = [&](int set) {
      return Tile<T>{shared + l.bins + set * Tile<T>::bytes(l.slots, l.table_rows), l.slots,
                     l.table_rows};
    };
    if constexpr (kDistance) {
#pragma unroll
      for (int set = 0; set < kSets; ++set)
        with_bias += distance_gradients<T>(l, g, own, HeadNear<T>(l, shared, set), square, factor,
                                           lines + set * 16 * l.line_pitch);
      __syncthreads();
    }
    if constexpr (Form != BiasForm::none) {
      const int row = in_warp % 16, axis = in_warp / 16, slot = own.first + row;
      const LineWalk walk(l, g, p.stage.span, slot, axis);
      const float* gradients[kSets];
      Tile<T> bins[kSets];
#pragma unroll
      for (int set = 0; set < kSets; ++set) {
        gradients[set] = lines + (set * 16 + row) * l.line_pitch + axis * l.row_width;
        bins[set] = bins_of(set);
      }
      if (p.has_tables) {
#pragma unroll
        for (int set = 0; set < kSets; ++set)
          for (int i = in_warp; i < 2 * l.table_rows; i += 32)
            *reinterpret_cast<uint4*>(bins[set].piece(own.first + i % 16, i / 16)) = {};
        __syncwarp();
        walk_line_back<T, kSets>(walk, l, p.stage.axes[axis], axis, Gates(p.stage, head),
                                 p.attention.scale, gradients, kept, bins, square, slot, gate_sums);
      } else {
        __syncwarp();
#pragma unroll
        for (int set = 0; set < kSets; ++set)
          write_line<T>(params, walk, batch_head, slot, axis, set, kDirect ? p.stage.sets : 1,
                        gradients[set]);
      }
      __syncwarp();
    }

    // dq, dk: the logits' gradients, and the table values' through the tables.
    const float table_unit = 1.0F / p.attention.scale;
    const auto add_tables = [&](float(&to)[kPieces][4], bool of_q) {
      if constexpr (Form == BiasForm::none) return;
      if (!p.has_tables) return;
      const int set = p.stage.sets - 1;  // k's is the last set, q's the first
      if (of_q ? !p.stage.first_from_q : p.stage.first_from_q && p.stage.sets == 1) return;
      const int own_set = of_q ? 0 : set;
      const Tile<T> table{shared + l.tables + own_set * Tile<T>::bytes(l.table_rows, Size),
                          l.table_rows, Size};
      const Tile<T> bins = bins_of(kSets == 2 ? own_set : 0);
      for (int row = 0; row < l.table_rows; row += 16)
        multiply_add_columns<T>(to, load_a(bins, own.first, row), table, row);
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece)
#pragma unroll
        for (int e = 0; e < 4; ++e) to[piece][e] *= table_unit;
    };
    if (params.dq.data != nullptr) {
      float dq[kPieces][4] = {};
      add_tables(dq, true);
#pragma unroll 2
      for (int slot = 0; slot < l.slots; slot += 16)
        multiply_add_columns<T>(dq, load_a(square, own.first, slot), k, slot);
      store(params.dq, dq, p.attention.scale);
    }
    wait_for_copies<0>();
    __syncthreads();
    if (params.dk.data != nullptr) {
      float dk[kPieces][4] = {};
      add_tables(dk, false);
#pragma unroll 2
      for (int slot = 0; slot < l.slots; slot += 16)
        multiply_add_columns<T>(dk, load_a_columns<T>(square, slot, own.first), q, slot);
      store(params.dk, dk, p.attention.scale);
    }
    if constexpr (Form != BiasForm::none) {
      if (params.dtables != nullptr)
        for (int set = 0; set < p.stage.sets; ++set)
          add_table_gradients<T, Size>(params, own, set, image == turn,
                                       bins_of(kSets == 2 ? set : 0),
                                       set == 0 && p.stage.first_from_q ? q : k);
    }
    __syncthreads();
  }

  if constexpr (Form != BiasForm::none) {
    const auto write_sum = [&](float* to, float share) {
      if (to == nullptr) return;
      const float sum = head_sum(share, deltas);
      if (threadIdx.x == 0) to[blockIdx.x] = sum;
    };
    write_sum(params.dgain, with_bias * (p.attention.inside ? p.attention.scale : 1.0F));
    if (p.has_tables) {
      write_sum(params.dgate_scale, gate_sums.scale);
      write_sum(params.dgate_offset, gate_sums.offset);
    }
  }
}

template <class T>
void head_attention_backward(const HeadBackward& p, BiasForm form, cudaStream_t stream) {
  const auto& g = p.forward.attention.geometry;
  dispatch_small_head(g.head_size, [&](auto size) {
    dispatch_form(form, [&](auto compiled) {
      launch(head_backward_kernel<T, decltype(size)::value, decltype(compiled)::value>,
             std::int64_t(p.forward.turns) * g.heads, 1, p.forward.layout.warps * 32,
             p.forward.layout.bytes, stream, p);
    });
  });
}

}  // namespace sape2::kernels::cuda
