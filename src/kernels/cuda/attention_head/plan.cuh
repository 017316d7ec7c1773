#pragma once

#include "kernels/cuda/attention_head/kernels.h"
#include "kernels/cuda/attention_head/layout.h"
#include "kernels/cuda/host/params.h"

/// What a kernel knows of its call.
namespace sape2::kernels::cuda::head {

/// Device functions take these rather than the call's own, since of compiled grids the compiler
/// knows many of them, of exact ones nearly all.
struct Plan {
  Layout layout;
  Geometry geometry;
  bool has_tables;
  int sets;
  Span span;
};

template <int Size, BiasForm Form, GridKind Grid, bool Backward>
__device__ Plan make_plan(const ForwardParams& p) {
  Plan plan{p.layout, p.attention.geometry, p.has_tables, p.stage.sets, p.stage.span};
  if constexpr (Form == BiasForm::none || Form == BiasForm::distance_pair) {
    plan.layout.beside = 0;  // known of all calls: rows have no room, or the grid is not compiled
  }
  plan.layout.grid = Grid;
  if constexpr (Grid == GridKind::any) {
    __builtin_assume(plan.layout.row_width != 12);
  } else {
    plan.geometry.head_size = Size;
    if (Grid != GridKind::up_to_12) plan.geometry.aligned = true;
    if (Form != BiasForm::none) {
      plan.has_tables = true;
      plan.sets = 1;
      plan.span = specialized_span(Form);
    }
    plan.layout.row_width = row_width(Grid);
    plan.layout.centered_pitch = (16 + 16) * 2 + 16;
  }
  if constexpr (is_exact(Grid)) {
    constexpr Layout kLayout =
        exact_layout(Grid, Form, Size, Backward, saves_stage1(Grid, Form, Size));
    constexpr int kTiles = kLayout.q | kLayout.k | kLayout.tables | kLayout.v | kLayout.dout |
                           kLayout.k_step | kLayout.v_step;
    static_assert(!is_alone(Grid, Size) || kTiles % 1024 == 0, "warpgroups' products need it");
    static_assert(!kLayout.saves || kLayout.line_pitch * 4 <= kLayout.bins_pitch,
                  "gradients of vectors and of table values have one place");
    constexpr int kSide = longest_line(Grid);
    plan.layout = kLayout;
    plan.geometry.rows = plan.geometry.cols = kSide;
    plan.geometry.tokens = kSide * kSide;
    plan.geometry.prefix = 0;
  }
  return plan;
}

/// The token of every slot, or −1; exact grids need no such list.
__device__ inline void list_tokens(const Plan& plan, std::int16_t* tokens) {
  const auto& l = plan.layout;
  const auto& g = plan.geometry;
  if (is_exact(l.grid)) return;
  for (int slot = threadIdx.x; slot < l.slots; slot += blockDim.x) {
    const int y = l.row_of(slot), x = l.column_of(slot), behind = slot - l.grid_slots;
    int token = -1;
    if (y >= g.rows) {
      if (behind >= 0 && behind < g.prefix - l.beside) token = behind;
    } else if (x < g.cols) {
      token = g.prefix + y * g.cols + x;
    } else if (x == g.cols && y < l.beside) {
      token = y;
    }
    tokens[slot] = static_cast<std::int16_t>(token);
  }
}
/// Of slot `place` of a warp's sixteen from `first` on: told apart, as the compiler knows much of
/// the former.
__device__ inline int token_of(const Plan& plan, const std::int16_t* tokens, int first, int place) {
  const auto& l = plan.layout;
  if (!is_exact(l.grid)) return tokens[first + place];
  const int y = l.row_of(first) + l.row_of(place), x = l.column_of(place);
  const int side = longest_line(l.grid);
  const bool in_column = l.slots == side * l.row_width || y < side;
  return x < side && in_column ? y * side + x : -1;
}
/// Whether slot `place` of the eight from `first` on is one of the grid's. Padding beside the grid
/// is so too, and does no harm, unless prefix tokens stand there.
__device__ inline bool on_grid(const Plan& plan, int first, int place) {
  const auto& l = plan.layout;
  const bool beside = l.beside > 0 && l.column_of(first + place) >= plan.geometry.cols;
  return first < l.grid_slots && !beside;
}

/// Calls use(integral_constant) with the grid the call's kernel is compiled for; the general
/// kernel understands every layout but that of rows of 12 slots.
template <int Size, BiasForm Form, class Use>
void dispatch_grid(const ForwardParams& p, Use use) {
  const auto& g = p.attention.geometry;
  const auto grid = p.layout.grid;
  if constexpr (Form != BiasForm::distance_pair) {
    if ((g.aligned || grid == GridKind::up_to_12) && g.head_size == Size) {
      bool used = false;
      const auto use_if = [&](auto compiled) {
        if constexpr (is_compiled(decltype(compiled)::value, Form, Size))
          if (grid == decltype(compiled)::value) {
            use(compiled);
            used = true;
          }
      };
      use_if(std::integral_constant<GridKind, GridKind::up_to_8>());
      use_if(std::integral_constant<GridKind, GridKind::up_to_12>());
      use_if(std::integral_constant<GridKind, GridKind::up_to_16>());
      use_if(std::integral_constant<GridKind, GridKind::seven>());
      use_if(std::integral_constant<GridKind, GridKind::eight>());
      use_if(std::integral_constant<GridKind, GridKind::fourteen>());
      if (used) return;
    }
  }
  use(std::integral_constant<GridKind, GridKind::any>());
}

}  // namespace sape2::kernels::cuda::head
