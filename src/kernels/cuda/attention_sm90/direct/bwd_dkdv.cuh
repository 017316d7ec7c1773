#pragma once

#include "kernels/cuda/arch/mma.cuh"
#include "kernels/cuda/arch/pdl.cuh"
#include "kernels/cuda/arch/tma.cuh"
#include "kernels/cuda/arch/wgmma.cuh"
#include "kernels/cuda/attention_sm90/direct/bias.cuh"
#include "kernels/cuda/attention_sm90/direct/bwd_dkdv_bias.cuh"
#include "kernels/cuda/attention_sm90/kernels.h"
#include "kernels/cuda/attention_sm90/tiles.cuh"
#include "kernels/cuda/attention_sm90/tiling.h"
#include "kernels/cuda/common/online_softmax.cuh"
#include "kernels/cuda/common/tile.cuh"
#include "kernels/cuda/host/launch.h"
#include "kernels/cuda/host/params.h"

/// Attention backward on Hopper, keys along rows: one warpgroup takes 64 keys (with a direct bias a
/// square of the grid, see SquareTiling), walks over all queries and gathers dk and dv. No bias,
/// or the direct form.
namespace sape2::kernels::cuda::sm90 {

/// Places in shared memory, in bytes from its beginning. Of a tile of queries dout is needed later
/// than the rest and has slots of its own.
template <BiasForm Form>
struct BwdDkDvSmem {
  static constexpr int kSlots = 3, kDoutSlots = 2;
  static constexpr int kVectorBytes = Form == BiasForm::direct ? kRowTile * 16 : 0;  // of x, of y
  static constexpr int kNoteBytes = kRowTile * 8;  // pairs of log2(Σ e^logit) and dout · out
  static constexpr int kCopied = kTileBytes + 2 * kVectorBytes + kNoteBytes;  // all but dout
  static constexpr int kK = 0, kV = kK + kTileBytes;
  static constexpr int kQ = kV + kTileBytes, kDout = kQ + kSlots * kTileBytes;
  static constexpr int kX = kDout + kDoutSlots * kTileBytes, kY = kX + kSlots * kVectorBytes;
  static constexpr int kNotes = kY + kSlots * kVectorBytes;
  static constexpr int kArrived = kNotes + kSlots * kNoteBytes;
  static constexpr int kDoutArrived = kArrived + kSlots * 8;
  static constexpr int kRowsArrived = kDoutArrived + kDoutSlots * 8;
  static constexpr int kBytes = kRowsArrived + 8;
};

/// `Exact`: from bias to scores is a number of type T.
template <class T, BiasForm Form, bool Exact>
__global__ void __launch_bounds__(kThreads, 3)
    bwd_dkdv_kernel(const __grid_constant__ BackwardParams params) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Layout = BwdDkDvSmem<Form>;
  static_assert(!kIsDistance<Form>);
  constexpr bool kDirect = Form == BiasForm::direct;
  constexpr int kPieces = kTileColumns / 8;
  // The tile by which the launch before is likely done, and nobody waits for it in vain.
  constexpr int kTileOfWait = 2;
  // Aligned by the compiler: three blocks leave no room to do so here.
  extern __shared__ __align__(kSharedAlignment) unsigned char keys_memory[];
  const AttentionParams& p = params.base.forward;
  const auto& g = p.geometry;
  const int row_tiles = kDirect ? params.squares.tiles : g.padded_tokens / kRowTile;
  const int tiles = (g.tokens + kRowTile - 1) / kRowTile;
  const BlockCoord block(g, row_tiles);
  const Lane lane;
  const int warp = known_to_all_lanes(threadIdx.x / 32);

  const auto barriers = [](int place) {
    return reinterpret_cast<CopyBarrier*>(keys_memory + place);
  };
  CopyBarrier* const arrived = barriers(Layout::kArrived);
  CopyBarrier* const dout_arrived = barriers(Layout::kDoutArrived);
  CopyBarrier* const rows_arrived = barriers(Layout::kRowsArrived);
  const Tile<T> k_rows{keys_memory + Layout::kK, kRowTile, 64};
  const Tile<T> v_rows{keys_memory + Layout::kV, kRowTile, 64};
  // The matrix unit's names for places in this memory.
  const auto matrix = [](int place) {
    return descriptor(shared_address(keys_memory) + std::uint32_t(place));
  };
  const auto q_tile = [&](int slot) { return matrix(Layout::kQ + slot * kTileBytes); };
  const auto dout_tile = [&](int slot) { return matrix(Layout::kDout + slot * kTileBytes); };

  const int first_row = block.row_tile * kRowTile;
  SquareTiling::Place own{};
  if constexpr (kDirect) own = params.squares.place(block.row_tile);
  // Where the block's keys from number `first` on, a multiple of 8, come from and go to.
  const auto own_box = [&](int first = 0) -> BoxPlace {
    if constexpr (!kDirect) return block.tokens(first_row + first);
    if (!own.in_grid) return block.tokens(own.column + first);
    return {0, own.column, own.row + first / SquareTiling::kSide, block.head, block.image};
  };
  const auto load_q = [&](int tile, int slot) {
    expect_bytes(arrived + slot, Layout::kCopied);
    copy_box(keys_memory + Layout::kQ + slot * kTileBytes, params.q, block.tokens(tile * kRowTile),
             arrived + slot);
  };
  const auto load_vectors = [&](int tile, int slot) {
    if constexpr (kDirect) {
      const int first = tile * kRowTile, offset = slot * Layout::kVectorBytes;
      copy_box(keys_memory + Layout::kX + offset, params.x_eight,
               block.vectors(first, own.in_grid ? own.column : 0), arrived + slot);
      copy_box(keys_memory + Layout::kY + offset, params.y_eight, block.vectors(first, own.row),
               arrived + slot);
    }
  };
  // The queries' pass makes them, mostly the launch before.
  const auto load_notes = [&](int tile, int slot) {
    copy_box(keys_memory + Layout::kNotes + slot * Layout::kNoteBytes, params.notes,
             block.notes(tile * kRowTile, 2), arrived + slot);
  };
  const auto load_dout = [&](int tile, int bytes = kTileBytes) {
    const int slot = unsigned(tile) % Layout::kDoutSlots;
    expect_bytes(dout_arrived + slot, bytes);
    copy_box(keys_memory + Layout::kDout + slot * kTileBytes, params.dout,
             block.tokens(tile * kRowTile), dout_arrived + slot);
  };
  if (threadIdx.x == 0) {
    prefetch_maps(params.k_rows, params.v_rows, params.q, params.dout, params.notes);
    if constexpr (kDirect) prefetch_maps(params.x_eight, params.y_eight);
    for (int i = 0; i < Layout::kSlots; ++i) prepare_barrier(arrived + i);
    for (int i = 0; i < Layout::kDoutSlots; ++i) prepare_barrier(dout_arrived + i);
    prepare_barrier(rows_arrived);
  }
  publish_to_copy_engine();
  __syncthreads();
  // All blocks begin at once, and memory serves them for longer than a tile takes: what the first
  // tile needs comes first, and the rest when that is there.
  const bool by_prefix = kDirect && !own.in_grid;
  if (is_chosen()) {
    if (warp == 0) {
      expect_bytes(rows_arrived, kTileBytes);
      copy_box(k_rows.data, by_prefix ? params.k_rows_prefix : params.k_rows, own_box(),
               rows_arrived);
    }
    if (warp == 1) load_q(0, 0);
    if (warp == 2) load_vectors(0, 0);
    if (warp == 3) {
      load_dout(0, 2 * kTileBytes);  // with v
      copy_box(v_rows.data, by_prefix ? params.v_rows_prefix : params.v_rows, own_box(),
               dout_arrived);
    }
  }
  // Unless stage 1's way back has come between.
  if (!params.base.adds_to_dk) wait_for_previous();
  if (warp == 0 && is_chosen()) load_notes(0, 0);
  const auto load_following = [&] {
#pragma unroll
    for (int tile = 1; tile < Layout::kSlots; ++tile) {
      if (tile >= tiles) continue;
      if (warp == 0) {
        if (is_chosen()) load_notes(tile, tile);
      } else if (warp == 1) {
        if (is_chosen()) load_q(tile, tile);
      } else if (warp == 2) {
        if (is_chosen()) load_vectors(tile, tile);
      } else {
        if (tile < Layout::kDoutSlots && is_chosen()) load_dout(tile);
      }
    }
  };

  const float scale = p.scale * kLog2E;
  [[maybe_unused]] const KeysBias<T, Exact> bias(kDirect ? bias_ratio(p, block.head) : 0.0F,
                                                 own.in_grid);
  float weight[kPieces][4], gradient[kPieces][4], dk[8][4] = {}, dv[8][4] = {};
  FragmentA<T> fragments[kPieces / 2], dfragments[kPieces / 2];
  int slot = 0, slot_before = 0, phase = 0;  // of this tile's q and notes; of the one before
  const auto start_scores = [&] {
    begin_products();
    if constexpr (kDirect)
      bias.start(weight, eights_descriptor(
                             shared_address(keys_memory) + Layout::kX + slot * Layout::kVectorBytes,
                             Layout::kY - Layout::kX));
    start_row_product<T, 4, kDirect>(weight, matrix(Layout::kK), q_tile(slot));
    commit_products();
  };
  const auto await_queries = [&] {
    wait_for_boxes(arrived + slot, phase);
    hold(weight);
  };
  // Of two neighbouring queries, log2(Σ e^logit) and dout · out.
  const auto note = [&](int piece) {
    return reinterpret_cast<const float4*>(keys_memory + Layout::kNotes +
                                           slot * Layout::kNoteBytes)[piece * 4 + lane.t];
  };
  // Half a tile's log2(Σ e^logit), read before products start: beside those memory answers slowly.
  float shifts[kPieces / 2][2];
  const auto read_shifts = [&](int first_piece) {
#pragma unroll
    for (int i = 0; i < kPieces / 2; ++i) {
      const float4 pair = note(first_piece + i);
      shifts[i][0] = pair.x;
      shifts[i][1] = pair.z;
    }
  };
  const auto weigh = [&](int first_piece) {
#pragma unroll
    for (int i = 0; i < kPieces / 2; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float& score = weight[first_piece + i][e];
        score = power_of_2(fmaf(score, scale, -shifts[i][e % 2]));
      }
    hold(weight);
  };
  // The second half of a tile: its gradients, which had to wait for the registers of the last
  // tile's fragments. Weights and their gradients become fragments together, so that few numbers
  // wait at once. The slots of the tile before take what comes next.
  const auto make_fragments = [&](int tile) {
    read_shifts(kPieces / 2);
    begin_products();
    start_row_product<T>(gradient, matrix(Layout::kV),
                         dout_tile(unsigned(tile) % Layout::kDoutSlots));
    commit_products();
    __syncthreads();  // the slots of the tile before are free
    const int ahead = tile + Layout::kSlots - 1;
    if (warp == 0) {
      if (tile > 0 && ahead < tiles && is_chosen()) load_notes(ahead, slot_before);
    } else if (warp == 1) {
      if (tile > 0 && ahead < tiles && is_chosen()) load_q(ahead, slot_before);
    } else if (warp == 2) {
      if (tile > 0 && ahead < tiles && is_chosen()) load_vectors(ahead, slot_before);
    } else {
      if (tile > 0 && tile + 1 < tiles && is_chosen()) load_dout(tile + 1);
      // The sums that follow find room where these blocks leave some, and need nothing of theirs.
      if (kDirect && params.base.adds_to_dk && tile == kTileOfWait) {
        wait_for_previous();
        let_next_begin();
      }
    }
    weigh(kPieces / 2);
    wait_for_products<0>();
    hold(gradient);
#pragma unroll
    for (int k = 0; k < kPieces / 2; ++k) {
#pragma unroll
      for (int piece = 2 * k; piece < 2 * k + 2; ++piece) {
        const float4 pair = note(piece);
#pragma unroll
        for (int e = 0; e < 4; ++e)
          gradient[piece][e] = weight[piece][e] * (gradient[piece][e] - (e % 2 ? pair.w : pair.y));
      }
      fragments[k] = as_a<T>(weight[2 * k], weight[2 * k + 1]);
      dfragments[k] = as_a<T>(gradient[2 * k], gradient[2 * k + 1]);
    }
  };

  wait_for_boxes(rows_arrived, 0);
  await_queries();
  read_shifts(0);
  start_scores();
  load_following();
  wait_for_boxes(dout_arrived, 0);
  wait_for_products<0>();
  hold(weight);
  weigh(0);
  make_fragments(0);
  for (int tile = 1; tile < tiles; ++tile) {
    slot_before = slot;
    if (++slot == Layout::kSlots) {
      slot = 0;
      phase ^= 1;
    }
    await_queries();
    read_shifts(0);
    hold(dv);
    hold(dk);
    start_scores();
    start_column_product<T>(dv, fragments, dout_tile(unsigned(tile - 1) % Layout::kDoutSlots));
    start_column_product<T>(dk, dfragments, q_tile(slot_before));
    commit_products();
    wait_for_boxes(dout_arrived + unsigned(tile) % Layout::kDoutSlots,
                   unsigned(tile) / Layout::kDoutSlots);
    wait_for_products<1>();
    hold(weight);
    weigh(0);
    if constexpr (!kDirect) stay_in_order();
    wait_for_products<0>();
    hold(dk);
    hold(dv);
    keep(fragments);
    keep(dfragments);
    make_fragments(tile);
  }
  if constexpr (kDirect) {
    wait_for_previous();
    let_next_begin();
  }
  hold(dv);
  hold(dk);
  begin_products();
  start_column_product<T>(dv, fragments, dout_tile((tiles - 1) % Layout::kDoutSlots));
  start_column_product<T>(dk, dfragments, q_tile(slot));
  end_products();
  hold(dk);
  hold(dv);

  __syncthreads();  // nobody reads k and v any more
  const auto store = [&](const View& view, const CUtensorMap& map, const CUtensorMap& prefix_map,
                         const Tile<T>& tile, const float(&c)[8][4], float factor, bool adds) {
    store_rows(view, tile, c, factor, [&](int first) {
      if (adds && !by_prefix) return add_box(map, own_box(first), tile.data + first * 128);
      store_box(by_prefix ? prefix_map : map, own_box(first), tile.data + first * 128);
    });
  };
  store(params.base.dk, params.dk, params.dk_prefix, k_rows, dk, p.scale, params.base.adds_to_dk);
  store(params.base.dv, params.dv, params.dv_prefix, v_rows, dv, 1.0F, false);
  await_stored_boxes();
#endif
}

}  // namespace sape2::kernels::cuda::sm90
