#pragma once

#include "kernels/cuda/attention_sm90/direct/bwd_dkdv.cuh"
#include "kernels/cuda/attention_sm90/direct/bwd_dq.cuh"
#include "kernels/cuda/attention_sm90/direct/forward.cuh"
#include "kernels/cuda/attention_sm90/direct/square_bias.cuh"
#include "kernels/cuda/attention_sm90/distance/backward.cuh"
#include "kernels/cuda/attention_sm90/distance/backward_smem.cuh"
#include "kernels/cuda/attention_sm90/distance/forward.cuh"
#include "kernels/cuda/attention_sm90/distance/forward_block.cuh"
#include "kernels/cuda/attention_sm90/kernels.h"
#include "kernels/cuda/attention_sm90/tiling.h"
#include "kernels/cuda/common/tile.cuh"
#include "kernels/cuda/host/call.h"
#include "kernels/cuda/host/device.h"
#include "kernels/cuda/host/geometry.h"
#include "kernels/cuda/host/launch.h"
#include "kernels/cuda/host/params.h"
#include "kernels/cuda/host/tensor_map.h"

/// How the sm_90 kernels are started: tensor maps for TMA, and the variant for the sizes at hand.
/// Which calls they serve is said in host/dispatch.cpp.
namespace sape2::kernels::cuda::sm90 {

/// Boxes of the tiles that `columns` names, of their prefix tokens too.
template <class T>
bool make_key_maps(const ConstView& view, const Geometry& g, const KeyTiling& c, CUtensorMap* grid,
                   CUtensorMap* prefix) {
  if (!make_token_map<T>(view, g, c.prefix, c.across, c.down, c.part_width, c.rows_per_tile, grid))
    return false;
  return c.prefix == 0 || make_token_map<T>(view, g, 0, c.prefix, 1, c.width, 1, prefix);
}

/// Boxes of sixteen tokens of a result, where it is wanted.
template <class T>
bool make_result_map(const View& view, const Geometry& g, CUtensorMap* map) {
  return view.data == nullptr || make_token_map<T>(as_const(view), g, 0, g.tokens, 1, 16, 1, map);
}

/// Boxes of up to `tokens` keys of a tile that stands along rows: neighbours or, in the direct
/// form, rows of a square and, of prefix tokens, neighbours.
template <class T, BiasForm Form>
bool make_key_row_maps(const ConstView& view, const Geometry& g, int tokens, CUtensorMap* map,
                       CUtensorMap* prefix) {
  if (view.data == nullptr) return true;
  if constexpr (Form != BiasForm::direct)
    return make_token_map<T>(view, g, 0, g.tokens, 1, tokens, 1, map);
  constexpr int kSide = SquareTiling::kSide;
  return make_token_map<T>(view, g, g.prefix, g.cols, g.rows, kSide, tokens / kSide, map) &&
         (g.prefix == 0 || make_token_map<T>(view, g, 0, g.prefix, 1, tokens, 1, prefix));
}

/// Boxes of 64 tokens' vectors, and of their lengths where those are needed.
template <class T, BiasForm Form, class KernelParams>
bool make_vector_maps(const VectorBuffers& v, const Geometry& g, int box_entries, KernelParams* s) {
  if constexpr (Form == BiasForm::none) return true;
  if (!make_vector_map<T>(v.x, g, g.cols, v.width_x, kRowTile, &s->x, box_entries) ||
      !make_vector_map<T>(v.y, g, g.rows, v.width_y, kRowTile, &s->y, box_entries))
    return false;
  return !kIsDistance<Form> || (make_scalar_map(v.norm_x, g, 1, kRowTile, &s->norm_x) &&
                                make_scalar_map(v.norm_y, g, 1, kRowTile, &s->norm_y));
}

/// Whether vectors of the distance form come in short rows (DistanceBwdSmem).
inline bool are_short(const VectorBuffers& v) {
  return v.width_x <= 32 && v.width_y <= 32;
}

/// Calls use(integral_constant) with the eights of a grid row in the direct form, of a vector in
/// the distance form; 0: known at run time only, or irrelevant.
template <BiasForm Form, class Use>
void dispatch_row_n8(const KeyTiling& columns, const VectorBuffers& v, Use use) {
  if constexpr (Form == BiasForm::direct) {
    if (columns.part_width == 64) return use(std::integral_constant<int, 8>());
    if (columns.part_width == 56) return use(std::integral_constant<int, 7>());
    if (columns.part_width == 48) return use(std::integral_constant<int, 6>());
    if (columns.part_width == 40) return use(std::integral_constant<int, 5>());
    if (columns.part_width == 32) return use(std::integral_constant<int, 4>());
    if (columns.part_width == 24) return use(std::integral_constant<int, 3>());
    if (columns.part_width == 16) return use(std::integral_constant<int, 2>());
  } else if constexpr (kIsDistance<Form>) {
    if (are_short(v)) return use(std::integral_constant<int, 4>());
  }
  use(std::integral_constant<int, 0>());
}

/// Whether it is known here how the direct form's bias becomes a part of the scores, and takes but
/// one factor of type T.
template <class T>
bool has_exact_ratio(const AttentionParams& p) {
  const float ratio = p.inside ? 1.0F : 1.0F / p.scale;
  return p.gain == nullptr && static_cast<float>(static_cast<T>(ratio)) == ratio;
}

/// Whether there are kernels for grid rows of so many eights that fill their tiles.
constexpr bool has_whole_kernels(int row_n8) {
  return row_n8 > 1 && row_n8 != 5 && row_n8 != 7;
}
/// Whether tiles of grid rows are all there is, none of them lacks a token, and there are kernels
/// that know so.
inline bool is_whole(const KeyTiling& c) {
  return c.whole && c.parts == 1 && c.prefix == 0 && has_whole_kernels(c.part_width / 8);
}
/// Calls use(bool_constant): whether that is so, and `is_exact`.
template <int RowN8, class Use>
void dispatch_whole(const KeyTiling& columns, bool is_exact, Use use) {
  if constexpr (has_whole_kernels(RowN8))
    if (is_whole(columns) && is_exact) return use(std::true_type());
  use(std::false_type());
}

/// Whether forward does better with squares of the grid than with its rows: those of 24, 32, 48 and
/// 64 fill tiles by themselves. The vectors of larger grids would leave room for fewer blocks.
inline bool suits_squares(const Geometry& g) {
  const bool rows_are_better = g.cols == 24 || g.cols == 32 || g.cols == 48 || g.cols == 64;
  return g.rows % 8 == 0 && g.cols % 8 == 0 && g.prefix == 0 && !rows_are_better &&
         g.rows + g.cols <= 192;
}

/// Shared memory for a launch: so much that no more blocks fit a multiprocessor than it would have
/// if all were spread evenly. Launches overlap, and blocks settle wherever there is room first.
inline int spread_evenly(std::int64_t blocks, int bytes) {
  constexpr int kAll = 228 * 1024, kBeside = 1024, kUnit = 128;  // of Hopper
  const std::int64_t each = (blocks + multiprocessors() - 1) / multiprocessors();
  const int too_much_for_one_more = static_cast<int>(kAll / (each + 1)) - kBeside + kUnit;
  return std::max(bytes, too_much_for_one_more);
}

template <class T, BiasForm Form>
bool forward_as(const AttentionParams& p, cudaStream_t stream) {
  const auto& g = p.geometry;
  const auto& v = p.vectors;
  ForwardParams s{};
  s.base = p;
  const bool in_squares = Form == BiasForm::direct && suits_squares(g) && has_exact_ratio<T>(p);
  s.columns = key_tiling(g, Form, kTileColumns, in_squares);
  if (!make_token_map<T>(p.q, g, 0, g.tokens, 1, kRowTile, 1, &s.q) ||
      !make_key_maps<T>(p.k, g, s.columns, &s.k, &s.k_prefix) ||
      !make_key_maps<T>(p.v, g, s.columns, &s.v, &s.v_prefix) ||
      !make_result_map<T>(p.out, g, &s.out))
    return false;
  if (!in_squares &&
      !make_vector_maps<T, Form>(v, g, kIsDistance<Form> && are_short(v) ? 32 : 64, &s))
    return false;
  const std::int64_t blocks = g.batch_heads * (g.padded_tokens / kRowTile);
  if constexpr (Form == BiasForm::direct)
    if (in_squares) {
      if (!make_eights_map<T>(v.x, g, g.cols / 8, v.width_x, kRowTile, &s.x_eights) ||
          !make_eights_map<T>(v.y, g, g.rows / 8, v.width_y, kRowTile, &s.y_eights))
        return false;
      const int bytes = ForwardSmem<Form>::kPanels + SquarePanels::vector_bytes(s.columns) +
                        SquareBias<T>::kBytes;
      launch(forward_kernel<T, Form, 0, KeyTiles::whole_squares>, blocks, {.overlapping = true},
             kThreads, spread_evenly(blocks, bytes), stream, s);
      return true;
    }
  dispatch_row_n8<Form>(s.columns, v, [&](auto row_n8) {
    constexpr int kRowN8 = decltype(row_n8)::value;
    if constexpr (kIsDistance<Form>) {
      constexpr int kSteps = kRowN8 == 4 ? 2 : 4;
      launch(distance_forward_kernel<T, kSteps>, blocks, {.overlapping = true}, kThreads,
             DistanceForwardSmem<kSteps>::kBytes, stream, s);
    } else {
      dispatch_whole<Form == BiasForm::direct ? kRowN8 : 0>(
          s.columns, has_exact_ratio<T>(p), [&](auto whole) {
            constexpr auto kTiles =
                decltype(whole)::value ? KeyTiles::whole_rows : KeyTiles::any_rows;
            launch(forward_kernel<T, Form, kRowN8, kTiles>, blocks, {.overlapping = true}, kThreads,
                   spread_evenly(blocks, ForwardSmem<Form>::bytes(s.columns)), stream, s);
          });
    }
  });
  return true;
}

/// Whether blocks of the distance form's backward pass take one tile of rows after another, so that
/// what begins and ends one goes on beside the work of its neighbours. Long vectors leave no
/// registers for that, gradients of gains have a partial sum for each tile of rows, and tiles of
/// columns are brought in, and their lengths two further on, before the rows' last is done with.
inline bool walks_over_rows(const AttentionBackwardParams& p, std::int64_t items) {
  constexpr int kFewTiles = DistanceBwdSmem<2>::kRestStages + 1;
  return are_short(p.forward.vectors) && p.dgain == nullptr &&
         p.forward.geometry.tokens > kFewTiles * kRowTile && items > multiprocessors();
}

/// Of a launch of so many blocks.
inline TileStride tile_stride(const Geometry& g, std::int64_t blocks) {
  const std::int64_t row_tiles = g.padded_tokens / kRowTile, heads = blocks / row_tiles;
  return {.images = static_cast<int>(heads / g.heads),
          .heads = static_cast<int>(heads % g.heads),
          .row_tiles = static_cast<int>(blocks % row_tiles),
          .all_images = static_cast<int>(g.batch_heads / g.heads),
          .all_row_tiles = static_cast<int>(row_tiles)};
}

template <class T, BiasForm Form>
bool backward_as(const AttentionBackwardParams& p, cudaStream_t stream,
                 const BackwardContinuation& continuation) {
  const auto& f = p.forward;
  const auto& g = f.geometry;
  const auto& v = f.vectors;
  BackwardParams s{};
  s.base = p;
  s.columns = key_tiling(g, Form, kTileColumns);
  s.squares = square_tiling(g);
  const auto rows = [&](const ConstView& view, int tokens, CUtensorMap* map) {
    return make_token_map<T>(view, g, 0, g.tokens, 1, tokens, 1, map);
  };
  const auto key_rows = [&](const ConstView& view, int tokens, CUtensorMap* map,
                            CUtensorMap* prefix) {
    return make_key_row_maps<T, Form>(view, g, tokens, map, prefix);
  };
  if (!make_scalar_map(p.delta, g, 2, kRowTile, &s.lse_delta) || !rows(f.q, kRowTile, &s.q) ||
      !rows(p.dout, kRowTile, &s.dout) || !key_rows(f.k, kRowTile, &s.k_rows, &s.k_rows_prefix) ||
      !key_rows(f.v, kRowTile, &s.v_rows, &s.v_rows_prefix) ||
      !make_key_maps<T>(f.k, g, s.columns, &s.k, &s.k_prefix) ||
      !make_key_maps<T>(f.v, g, s.columns, &s.v, &s.v_prefix) ||
      !make_result_map<T>(p.dq, g, &s.dq) || !key_rows(as_const(p.dk), 16, &s.dk, &s.dk_prefix) ||
      !key_rows(as_const(p.dv), 16, &s.dv, &s.dv_prefix))
    return false;
  if (!make_vector_maps<T, Form>(v, g, kIsDistance<Form> && are_short(v) ? 32 : 64, &s))
    return false;
  if (Form == BiasForm::direct &&
      (!make_vector_map<T>(v.x, g, g.cols, v.width_x, kRowTile, &s.x_eight, 8) ||
       !make_vector_map<T>(v.y, g, g.rows, v.width_y, kRowTile, &s.y_eight, 8)))
    return false;
  const bool is_exact = Form == BiasForm::direct && has_exact_ratio<T>(f) && p.dgain == nullptr;
  if (is_exact && is_whole(s.columns) &&
      (!make_vector_map<T>(v.x, g, g.cols, v.width_x, kRowTile, &s.short_x, 32) ||
       !make_vector_map<T>(p.dx, g, g.cols, v.width_x, 16, &s.dx, g.cols <= 32 ? 32 : 64) ||
       !make_vector_map<T>(p.dy, g, g.rows, v.width_y, 16, &s.dy)))
    return false;
  const auto leave_vectors = [&](bool before_keys) {
    if (continuation.from) continuation.from({.fp32 = false, .before_keys = before_keys});
  };
  const int row_tiles = g.padded_tokens / kRowTile;
  dispatch_row_n8<Form>(s.columns, v, [&](auto row_n8) {
    constexpr int kRowN8 = decltype(row_n8)::value;
    if constexpr (kIsDistance<Form>) {
      const std::int64_t items = g.batch_heads * row_tiles;
      launch(lse_delta_kernel<T>, items, {.overlapping = true}, kThreads, 0, stream, p);
      constexpr int kSteps = kRowN8 == 4 ? 2 : 4;
      const auto pairs = [&](auto walks, std::int64_t blocks) {
        s.step = tile_stride(g, blocks);
        launch(distance_bwd_kernel<T, kSteps, decltype(walks)::value>, blocks,
               {.overlapping = true}, kPairThreads, DistanceBwdSmem<kSteps>::kBytes, stream, s);
      };
      if constexpr (kSteps == 2)
        if (walks_over_rows(p, items)) return pairs(std::true_type(), multiprocessors());
      pairs(std::false_type(), items);
    } else {
      const std::int64_t blocks = g.batch_heads * row_tiles;
      const std::int64_t key_blocks =
          Form == BiasForm::direct ? g.batch_heads * s.squares.tiles : blocks;
      dispatch_whole<Form == BiasForm::direct ? kRowN8 : 0>(s.columns, is_exact, [&](auto whole) {
        launch(bwd_dq_kernel<T, Form, kRowN8, decltype(whole)::value>, blocks,
               {.overlapping = true}, kThreads,
               spread_evenly(blocks, BwdDqSmem<Form>::bytes(s.columns)), stream, s);
      });
      // What sums up stage 1's parts in the end then goes on beside this pass.
      s.base.adds_to_dk = Form == BiasForm::direct && continuation.can_begin_dk;
      if (s.base.adds_to_dk) leave_vectors(true);
      const auto keys = [&](auto exact) {
        launch(bwd_dkdv_kernel<T, Form, decltype(exact)::value>, key_blocks, {.overlapping = true},
               kThreads, spread_evenly(key_blocks, sizeof(BwdDkDvSmem<Form>)), stream, s);
      };
      if constexpr (Form == BiasForm::direct)
        if (!has_exact_ratio<T>(f)) return keys(std::false_type());
      keys(std::true_type());
    }
  });
  if (!s.base.adds_to_dk) leave_vectors(false);
  return true;
}

template <class T>
bool forward(const AttentionParams& p, BiasForm form, cudaStream_t stream) {
  if (form == BiasForm::none) return forward_as<T, BiasForm::none>(p, stream);
  if (form == BiasForm::direct) return forward_as<T, BiasForm::direct>(p, stream);
  return forward_as<T, BiasForm::distance>(p, stream);
}

template <class T>
bool backward(const AttentionBackwardParams& p, BiasForm form, cudaStream_t stream,
              const BackwardContinuation& continuation) {
  if (form == BiasForm::none) return backward_as<T, BiasForm::none>(p, stream, continuation);
  if (form == BiasForm::direct) return backward_as<T, BiasForm::direct>(p, stream, continuation);
  return backward_as<T, BiasForm::distance>(p, stream, continuation);
}

}  // namespace sape2::kernels::cuda::sm90
