#pragma once

#include "kernels/cuda/block_sum.cuh"
#include "kernels/cuda/rows_delta.cuh"
#include "kernels/cuda/stream_distance.cuh"

/// Attention backward on Hopper, distance form. A block takes 64 tokens, as queries and as keys at
/// once, and walks over all tokens in tiles: a pair's distance serves both ways round, and the
/// vectors' gradients need both. Four warpgroups share the work: one has the tokens as queries
/// (dq), one as keys (dk, dv), and two make the distances, one axis each and a tile ahead, and
/// gather that axis's gradients. Threads of the same number in each own the same pairs, so what
/// they hand to one another through shared memory lies thread by thread.
namespace sape2::kernels::cuda {

inline constexpr int kPairThreads = 4 * kThreads;

struct StreamPairsLayout {
  static constexpr int kColumns = kStreamColumns<BiasForm::distance>, kPieces = kColumns / 8;
  static constexpr int kStages = 4;
  enum Part { q, k, v, dout, x, y, kParts };
  static constexpr int kTileBytes = kColumns * 128;
  static constexpr int kStageBytes = kParts * kTileBytes;
  // Of a tile's columns: pairs of log2(Σ e^logit) and dout · out, then both squared lengths.
  static constexpr int kNoteBytes = 4 * kColumns * 4;
  // By thread, two buffers each: distances of both axes, gradients of both sides.
  static constexpr int kLengths = kPieces * kThreads * 16;
  static constexpr int kGradients = kPieces / 2 * kThreads * 16;
  static constexpr int kExchange = 2 * (2 * kLengths + 2 * kGradients);
  static constexpr int kScratch = kPairThreads / 32 * 4;
  static constexpr int kBytes = kSharedAlignment + kParts * kStreamTile +
                                kStages * (kStageBytes + kNoteBytes) + kExchange + kScratch +
                                (kStages + 1) * 8;
};

/// (log2(Σ e^logit), dout · out) of every token, and of the padding what gives weights of 0.
template <class T>
__global__ void __launch_bounds__(kThreads)
    stream_notes_kernel(const __grid_constant__ BackwardParams params) {
  __shared__ float delta[kRowTile];
  const auto& g = params.forward.geometry;
  const StreamBlock block(g, g.padded_tokens / kRowTile);
  const int first_row = block.row_tile * kRowTile;
  rows_delta<T, 64>(params, block.image, block.head, first_row, delta);
  __syncthreads();
  if (threadIdx.x >= kRowTile) return;
  const int token = first_row + threadIdx.x;
  float2 note = make_float2(INFINITY, 0.0F);
  if (token < g.tokens) {
    const SoftmaxRow row = params.forward.softmax[block.batch_head * g.tokens + token];
    note = make_float2(row.maximum * kLog2E + log_of_2(row.sum), delta[threadIdx.x]);
  }
  reinterpret_cast<float2*>(params.delta)[block.batch_head * g.padded_tokens + token] = note;
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/// What the warpgroups of a block share.
template <class T>
struct StreamPairs {
  using Layout = StreamPairsLayout;
  static constexpr int kColumns = Layout::kColumns, kPieces = Layout::kPieces;
  // Of each tile by its number's parity: its distances are there, or both sides' gradients.
  enum Barrier { kLengthsReady = 1, kGradientsReady = 3 };

  const StreamBackward& params;
  const AttentionParams& p;
  const Geometry& g;
  StreamBlock block;
  int tiles, first_row, row, thread;  // row and row + 8 are this lane's
  float scale, factor;                // of scores, times log2(e), and of the bias
  unsigned char* rows;
  unsigned char* stages;
  unsigned char* notes;
  unsigned char* exchange;
  float* scratch;
  CopyBarrier* arrived;
  std::uint64_t rows_descriptor, stages_descriptor;

  __device__ StreamPairs(const StreamBackward& all, unsigned char* shared)
      : params(all),
        p(all.base.forward),
        g(p.geometry),
        block(g, g.padded_tokens / kRowTile),
        tiles((g.tokens + kColumns - 1) / kColumns),
        first_row(block.row_tile * kRowTile),
        thread(threadIdx.x % kThreads),
        scale(p.scale * kLog2E),
        factor(per_head(p.gain, block.head, 1.0F) * (p.inside ? p.scale : 1.0F)),
        rows(shared),
        stages(rows + Layout::kParts * kStreamTile),
        notes(stages + Layout::kStages * Layout::kStageBytes),
        exchange(notes + Layout::kStages * Layout::kNoteBytes),
        scratch(reinterpret_cast<float*>(exchange + Layout::kExchange)),
        arrived(reinterpret_cast<CopyBarrier*>(exchange + Layout::kExchange + Layout::kScratch)) {
    row = first_row + thread / 32 * 16 + Lane().g;
    rows_descriptor = descriptor(own(0), 0, 0);
    stages_descriptor = descriptor(other(0, 0), 0, 0);
  }

  __device__ Tile<T> own(int part) const { return {rows + part * kStreamTile, kRowTile, 64}; }
  __device__ Tile<T> other(int tile, int part) const {
    return {stages + tile % Layout::kStages * Layout::kStageBytes + part * Layout::kTileBytes,
            kColumns, 64};
  }
  /// The same for the matrix unit; tiles lie one behind the other.
  __device__ std::uint64_t own_descriptor(int part) const {
    return rows_descriptor + part * (kStreamTile / 16);
  }
  __device__ std::uint64_t other_descriptor(int tile, int part) const {
    return stages_descriptor + tile % Layout::kStages * (Layout::kStageBytes / 16) +
           part * (Layout::kTileBytes / 16);
  }
  __device__ float* note(int tile) const {
    return reinterpret_cast<float*>(notes + tile % Layout::kStages * Layout::kNoteBytes);
  }
  __device__ float4* lengths(int tile, int axis) const {
    return reinterpret_cast<float4*>(exchange + (tile % 2 * 2 + axis) * Layout::kLengths) + thread;
  }
  /// Of queries (0) or keys (1).
  __device__ uint4* gradients(int tile, int side) const {
    return reinterpret_cast<uint4*>(exchange + 4 * Layout::kLengths +
                                    (tile % 2 * 2 + side) * Layout::kGradients) +
           thread;
  }
  __device__ void await(Barrier barrier, int tile) const {
    asm volatile("bar.sync %0, %1;" ::"r"(barrier + tile % 2), "n"(kPairThreads) : "memory");
  }
  __device__ void announce(Barrier barrier, int tile) const {
    asm volatile("bar.arrive %0, %1;" ::"r"(barrier + tile % 2), "n"(kPairThreads) : "memory");
  }
  __device__ void await_tile(int tile) const {
    wait_for_boxes(arrived + tile % Layout::kStages, tile / Layout::kStages);
  }

  /// One thread starts the copies of the block's own rows.
  __device__ void load_rows() const {
    CopyBarrier* const barrier = arrived + Layout::kStages;
    expect_bytes(barrier, Layout::kParts * kStreamTile);
    copy_box(own(Layout::q).data, params.q, block.tokens(first_row), barrier);
    copy_box(own(Layout::k).data, params.k_rows, block.tokens(first_row), barrier);
    copy_box(own(Layout::v).data, params.v_rows, block.tokens(first_row), barrier);
    copy_box(own(Layout::dout).data, params.dout, block.tokens(first_row), barrier);
    copy_box(own(Layout::x).data, params.x, block.vectors(first_row), barrier);
    copy_box(own(Layout::y).data, params.y, block.vectors(first_row), barrier);
  }
  __device__ void load_tile(int tile) const {
    const int first = tile * kColumns;
    const std::int64_t token = block.batch_head * g.padded_tokens + first;
    CopyBarrier* const barrier = arrived + tile % Layout::kStages;
    expect_bytes(barrier, Layout::kStageBytes + Layout::kNoteBytes);
    copy_box(other(tile, Layout::x).data, params.x_columns, block.vectors(first), barrier);
    copy_box(other(tile, Layout::y).data, params.y_columns, block.vectors(first), barrier);
    copy_bytes(note(tile), params.base.delta + 2 * token, 2 * kColumns * 4, barrier);
    copy_bytes(note(tile) + 2 * kColumns, p.vectors.norm_x + token, kColumns * 4, barrier);
    copy_bytes(note(tile) + 3 * kColumns, p.vectors.norm_y + token, kColumns * 4, barrier);
    copy_box(other(tile, Layout::q).data, params.q_columns, block.tokens(first), barrier);
    copy_box(other(tile, Layout::k).data, params.k, block.tokens(first), barrier);
    copy_box(other(tile, Layout::v).data, params.v, block.tokens(first), barrier);
    copy_box(other(tile, Layout::dout).data, params.dout_columns, block.tokens(first), barrier);
  }

  /// Starts both products of this side's scores and of its weights' gradients, one commit each.
  __device__ void start_scores(float (&weight)[kPieces][4], float (&gradient)[kPieces][4], int tile,
                               int own_score, int other_score, int own_dweight,
                               int other_dweight) const {
    begin_products();
    start_row_product<T>(weight, own_descriptor(own_score), other_descriptor(tile, other_score));
    commit_products();
    start_row_product<T>(gradient, own_descriptor(own_dweight),
                         other_descriptor(tile, other_dweight));
    commit_products();
  }
  /// Both axes' distances of a piece, added up.
  __device__ void sum_lengths(float (&sum)[4], int tile, int piece) const {
    const float4 x = lengths(tile, 0)[piece * kThreads], y = lengths(tile, 1)[piece * kThreads];
    sum[0] = x.x + y.x;
    sum[1] = x.y + y.y;
    sum[2] = x.z + y.z;
    sum[3] = x.w + y.w;
  }
  /// Hands this side's gradients to the warpgroups of the axes.
  __device__ void hand_over(const FragmentA<T> (&fragments)[kPieces / 2], int tile,
                            int side) const {
    uint4* const to = gradients(tile, side);
#pragma unroll
    for (int k = 0; k < kPieces / 2; ++k)
      to[k * kThreads] =
          make_uint4(fragments[k].r[0], fragments[k].r[1], fragments[k].r[2], fragments[k].r[3]);
    announce(kGradientsReady, tile);
  }

  /// Tokens as queries; returns this lane's share of Σ gradient · bias.
  __device__ float queries() const {
    const auto& columns = params.columns;
    const float2* const own_notes =
        reinterpret_cast<const float2*>(params.base.delta) + block.batch_head * g.padded_tokens;
    const float2 row_notes[2] = {own_notes[row], own_notes[row + 8]};
    const bool with_gain = params.base.dgain != nullptr;
    float with_bias = 0.0F;
    ColumnMask<kPieces> mask;
    float dq[8][4] = {};
    for (int tile = 0; tile < tiles; ++tile) {
      await_tile(tile);
      float weight[kPieces][4], gradient[kPieces][4];
      start_scores(weight, gradient, tile, Layout::q, Layout::k, Layout::dout, Layout::v);
      wait_for_products<1>();
      hold(weight);
      await(kLengthsReady, tile);
      float length[kPieces][4];
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece) {
        sum_lengths(length[piece], tile, piece);
#pragma unroll
        for (int e = 0; e < 4; ++e)
          weight[piece][e] =
              power_of_2(fmaf(weight[piece][e], scale,
                              fmaf(length[piece][e], factor * kLog2E, -row_notes[e / 2].x)));
      }
      mask.apply(weight, columns, columns.place(tile), 0.0F);
      wait_for_products<0>();
      hold(gradient);
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          gradient[piece][e] = weight[piece][e] * (gradient[piece][e] - row_notes[e / 2].y);
      FragmentA<T> fragments[kPieces / 2];
#pragma unroll
      for (int k = 0; k < kPieces / 2; ++k)
        fragments[k] = as_a<T>(gradient[2 * k], gradient[2 * k + 1]);
      hand_over(fragments, tile, 0);
      hold(dq);
      begin_products();
      start_column_product<T>(dq, fragments, other_descriptor(tile, Layout::k));
      commit_products();
      if (with_gain) {
#pragma unroll
        for (int piece = 0; piece < kPieces; ++piece)
#pragma unroll
          for (int e = 0; e < 4; ++e)
            with_bias = fmaf(gradient[piece][e], length[piece][e], with_bias);
      }
      wait_for_products<0>();
      hold(dq);
    }
    store(params.base.dq, dq, p.scale);
    return with_bias;
  }

  /// Tokens as keys.
  __device__ void keys() const {
    float dk[8][4] = {}, dv[8][4] = {};
    for (int tile = 0; tile < tiles; ++tile) {
      await_tile(tile);
      float weight[kPieces][4], gradient[kPieces][4];
      start_scores(weight, gradient, tile, Layout::k, Layout::q, Layout::v, Layout::dout);
      // Of two neighbouring queries, log2(Σ e^logit) and dout · out.
      const float4* const query_notes = reinterpret_cast<const float4*>(note(tile)) + Lane().t;
      wait_for_products<1>();
      hold(weight);
      await(kLengthsReady, tile);
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece) {
        float length[4];
        sum_lengths(length, tile, piece);
        const float4 pair = query_notes[piece * 4];
#pragma unroll
        for (int e = 0; e < 4; ++e)
          weight[piece][e] =
              power_of_2(fmaf(weight[piece][e], scale,
                              fmaf(length[e], factor * kLog2E, e % 2 ? -pair.z : -pair.x)));
      }
      FragmentA<T> fragments[kPieces / 2], dfragments[kPieces / 2];
#pragma unroll
      for (int k = 0; k < kPieces / 2; ++k)
        fragments[k] = as_a<T>(weight[2 * k], weight[2 * k + 1]);
      wait_for_products<0>();
      hold(gradient);
      hold(dv);
      begin_products();
      start_column_product<T>(dv, fragments, other_descriptor(tile, Layout::dout));
      commit_products();
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece) {
        const float4 pair = query_notes[piece * 4];
#pragma unroll
        for (int e = 0; e < 4; ++e)
          gradient[piece][e] = weight[piece][e] * (gradient[piece][e] - (e % 2 ? pair.w : pair.y));
      }
#pragma unroll
      for (int k = 0; k < kPieces / 2; ++k)
        dfragments[k] = as_a<T>(gradient[2 * k], gradient[2 * k + 1]);
      hand_over(dfragments, tile, 1);
      hold(dk);
      begin_products();
      start_column_product<T>(dk, dfragments, other_descriptor(tile, Layout::q));
      end_products();
      hold(dk);
      hold(dv);
    }
    store(params.base.dk, dk, p.scale);
    store(params.base.dv, dv, 1.0F);
  }

  /// Distances along one axis, a tile ahead of the first two warpgroups, and the gradients of that
  /// axis's vectors. `Steps`: sixteens of a vector's entries.
  template <int Steps>
  __device__ void distances(int axis) const {
    const int part = axis ? Layout::y : Layout::x;
    const StreamDistance<T> distance(p, block.batch_head, row, axis);
    StreamDistanceGradient<T> gradient;
    float products[kPieces][4], inverse[kPieces][4];
    const auto start_products = [&](int tile) {
      if (tile < tiles) {
        await_tile(tile);
        begin_products();
        start_row_product<T, Steps>(products, own_descriptor(part), other_descriptor(tile, part));
      }
      commit_products();
    };
    const auto publish_lengths = [&](int tile) {
      hold(products);
      distance.squares(products, note(tile) + (2 + axis) * kColumns, row, tile * kColumns);
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece) {
        float length[4];
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float square = products[piece][e];
          products[piece][e] = inverse_root_of_distance(square);
          length[e] = fabsf(square) * products[piece][e];
        }
        lengths(tile, axis)[piece * kThreads] = reinterpret_cast<const float4&>(length);
      }
      announce(kLengthsReady, tile);
    };
    start_products(0);
    wait_for_products<0>();
    publish_lengths(0);
    copy(inverse, products);
    start_products(1);
    for (int tile = 0; tile < tiles; ++tile) {
      wait_for_products<0>();
      if (tile + 1 < tiles) publish_lengths(tile + 1);
      await(kGradientsReady, tile);
      // Nobody needs the tile before this one any more.
      if (threadIdx.x == 2 * kThreads && tile > 0 && tile - 1 + Layout::kStages < tiles)
        load_tile(tile - 1 + Layout::kStages);
      FragmentA<T> omega[kPieces / 2];
#pragma unroll
      for (int k = 0; k < kPieces / 2; ++k) {
        const uint4 from[2] = {gradients(tile, 0)[k * kThreads], gradients(tile, 1)[k * kThreads]};
        const std::uint32_t both[4] = {
            add_pairs<T>(from[0].x, from[1].x), add_pairs<T>(from[0].y, from[1].y),
            add_pairs<T>(from[0].z, from[1].z), add_pairs<T>(from[0].w, from[1].w)};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float2 pair = unpack<T>(both[i]);
          const float* const by = inverse[2 * k + i / 2] + i % 2 * 2;
          omega[k].r[i] = pack<T>(pair.x * by[0], pair.y * by[1]);
        }
      }
      gradient.add_weights(omega);
      hold(gradient.sum);
      begin_products();
      gradient.start(omega, other_descriptor(tile, part));
      commit_products();
      copy(inverse, products);
      start_products(tile + 2);
      wait_for_products<1>();
      hold(gradient.sum);
      gradient.keep(omega);
    }
    const int width = axis ? p.vectors.width_y : p.vectors.width_x;
    gradient.finish(own(part), thread, factor,
                    static_cast<float*>(axis ? params.base.dy : params.base.dx) +
                        (block.batch_head * g.padded_tokens + row) * width,
                    width);
  }
  __device__ static void copy(float (&to)[kPieces][4], const float (&from)[kPieces][4]) {
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece)
#pragma unroll
      for (int e = 0; e < 4; ++e) to[piece][e] = from[piece][e];
  }

  __device__ void store(const View& view, const float (&c)[8][4], float by) const {
    if (view.data == nullptr) return;
    const auto to = head_of<T>(view, block.image, block.head);
#pragma unroll
    for (int half = 0; half < 2; ++half)
      if (row + 8 * half < g.tokens)
        store_row(to.row(row + 8 * half), c, half, by, g.head_size, g.aligned);
  }
};

#endif

/// `Steps`: sixteens of entries in the longer of the two vectors.
template <class T, int Steps>
__global__ void __launch_bounds__(kPairThreads, 1)
    stream_pairs_kernel(const __grid_constant__ StreamBackward params) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Layout = StreamPairsLayout;
  extern __shared__ unsigned char unaligned[];
  const StreamPairs<T> pairs(params, aligned_shared(unaligned));
  if (threadIdx.x == 0)
    for (int i = 0; i <= Layout::kStages; ++i) prepare_barrier(pairs.arrived + i);
  publish_to_copy_engine();
  __syncthreads();
  if (threadIdx.x == 0) {
    pairs.load_rows();
    for (int tile = 0; tile < min(Layout::kStages, pairs.tiles); ++tile) pairs.load_tile(tile);
  }
  wait_for_boxes(pairs.arrived + Layout::kStages, 0);
  float with_bias = 0.0F;
  const int role = __shfl_sync(0xffffffffu, threadIdx.x / kThreads, 0);
  // Keys have most sums to keep: registers go to them from the others.
  if (role == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 120;");
    with_bias = pairs.queries();
  } else if (role == 1) {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 152;");
    pairs.keys();
  } else {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 120;");
    pairs.template distances<Steps>(role - 2);
  }
  if (params.base.dgain != nullptr) {
    const float sum = block_sum(with_bias, pairs.scratch);
    if (threadIdx.x == 0)
      params.base.dgain[blockIdx.x] = sum * (pairs.p.inside ? pairs.p.scale : 1.0F);
  }
#endif
}

}  // namespace sape2::kernels::cuda
