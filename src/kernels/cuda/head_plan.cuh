#pragma once

#include "kernels/cuda/head_attention.h"

/// What a kernel knows of its call.
namespace sape2::kernels::cuda {

/// Device functions take these rather than the call's own, since in usual grids the compiler knows
/// nearly all of them.
struct HeadPlan {
  HeadLayout layout;
  Geometry geometry;
  bool has_tables;
  int sets;
  Span span;
};

template <int Size, BiasForm Form, HeadGrid Grid, bool Backward>
__device__ HeadPlan head_plan(const HeadForward& p) {
  HeadPlan plan{p.layout, p.attention.geometry, p.has_tables, p.stage.sets, p.stage.span};
  if constexpr (Grid != HeadGrid::any) {
    constexpr HeadLayout kLayout = usual_layout(Grid, Form, Size, Backward);
    plan.layout = kLayout;
    plan.geometry.rows = plan.geometry.cols = grid_side(Grid);
    plan.geometry.tokens = grid_side(Grid) * grid_side(Grid);
    plan.geometry.prefix = 0;
    plan.geometry.head_size = Size;
    plan.geometry.aligned = true;
    plan.has_tables = true;
    plan.sets = 1;
    plan.span = usual_span(Form);
  }
  return plan;
}

/// The token of every slot, or −1; usual grids need no such list.
__device__ inline void note_tokens(const HeadPlan& plan, std::int16_t* tokens) {
  const auto& l = plan.layout;
  const auto& g = plan.geometry;
  if (l.grid != HeadGrid::any) return;
  for (int slot = threadIdx.x; slot < l.slots; slot += blockDim.x) {
    const int y = slot / l.row_width, x = slot % l.row_width;
    const int prefix = slot - l.grid_slots;
    tokens[slot] = y < g.rows ? (x < g.cols ? g.prefix + y * g.cols + x : -1)
                              : (prefix < g.prefix ? prefix : -1);
  }
}
__device__ inline int token_of(const HeadPlan& plan, const std::int16_t* tokens, int slot) {
  const auto& l = plan.layout;
  if (l.grid == HeadGrid::any) return tokens[slot];
  const int y = slot / l.row_width, x = slot % l.row_width, side = grid_side(l.grid);
  return x < side && y < side ? y * side + x : -1;
}

/// Calls use(integral_constant) with the grid the call's kernel is compiled for.
template <int Size, BiasForm Form, class Use>
void dispatch_grid(const HeadForward& p, Use use) {
  const auto& g = p.attention.geometry;
  if constexpr (Form == BiasForm::direct || Form == BiasForm::distance) {
    if (g.aligned && g.head_size == Size && p.stage.span == usual_span(Form)) {
      if (p.layout.grid == HeadGrid::seven)
        return use(std::integral_constant<HeadGrid, HeadGrid::seven>());
      if (p.layout.grid == HeadGrid::eight)
        return use(std::integral_constant<HeadGrid, HeadGrid::eight>());
      if constexpr (Size == 64)
        if (p.layout.grid == HeadGrid::fourteen)
          return use(std::integral_constant<HeadGrid, HeadGrid::fourteen>());
    }
  }
  use(std::integral_constant<HeadGrid, HeadGrid::any>());
}

}  // namespace sape2::kernels::cuda
