#include "kernels/cuda/host/geometry.h"

#include "kernels/cuda/axis_vectors/specialized/limits.h"
#include "kernels/cuda/common/tile_layout.h"

#include <algorithm>

namespace sape2::kernels::cuda {

std::size_t element_bytes(DType dtype) {
  return dtype == DType::float32 ? 4 : 2;
}

Geometry geometry_of(const Shape& shape, DType dtype, std::initializer_list<ConstView> views) {
  const auto bytes = static_cast<std::int64_t>(element_bytes(dtype));
  bool aligned = shape.head_size * bytes % 16 == 0;
  for (const auto& view : views) {
    aligned = aligned && reinterpret_cast<std::uintptr_t>(view.data) % 16 == 0;
    for (const std::int64_t stride : {view.image_stride, view.head_stride, view.token_stride})
      aligned = aligned && stride * bytes % 16 == 0;
  }
  const int tokens = static_cast<int>(shape.tokens());
  return {.batch_heads = shape.images * shape.heads,
          .heads = static_cast<int>(shape.heads),
          .rows = static_cast<int>(shape.rows),
          .cols = static_cast<int>(shape.cols),
          .prefix = static_cast<int>(shape.prefix),
          .tokens = tokens,
          .padded_tokens = round_up(tokens, kRowTile),
          .head_size = static_cast<int>(shape.head_size),
          .aligned = aligned};
}

namespace {

/// Few blocks, since each has partial sums of its own, but enough for a large device; no more than
/// it runs at once (three or two a multiprocessor, by the lines' length), since a few left over
/// would take as long as all.
std::int64_t blocks_in_head(const Geometry& g) {
  const std::int64_t blocks =
      std::max(g.rows, g.cols) <= 32 || axis_vectors::specialized::sizes_fit(g) ? 396 : 264;
  return std::max<std::int64_t>(1, blocks / std::max<std::int64_t>(1, g.batch_heads));
}

void divide(axis_vectors::AxisLines& axis, std::int64_t blocks) {
  axis.chunk = static_cast<int>((axis.groups + blocks - 1) / blocks);
  axis.chunks = (axis.groups + axis.chunk - 1) / axis.chunk;
}

}  // namespace

axis_vectors::AxisLines axis_vectors::axis_lines(const Geometry& g, Span span,
                                                 std::int64_t table_rows, bool along_y) {
  axis_vectors::AxisLines axis{};
  axis.length = along_y ? g.rows : g.cols;
  axis.lines = along_y ? g.cols : g.rows;
  axis.position_stride = along_y ? g.cols : 1;
  axis.line_stride = along_y ? 1 : g.cols;
  if (span == Span::suffix) {
    axis.positions = static_cast<int>(std::min<std::int64_t>(table_rows, axis.length + 1));
  } else {
    const std::int64_t reach = table_rows / 2;
    axis.origin = static_cast<int>(std::min<std::int64_t>(reach, axis.length - 1));
    axis.table_first = static_cast<int>(reach - axis.origin);
    axis.positions = 2 * axis.origin + 1;
  }
  axis.line_rows = round_up(axis.length, 16);
  axis.group = std::min(axis.lines, std::max(1, kRowTile / axis.line_rows));
  axis.groups = (axis.lines + axis.group - 1) / axis.group;
  axis.group_rows = axis.group * axis.line_rows;
  divide(axis, blocks_in_head(g));
  axis.cluster = 1;
  return axis;
}

void axis_vectors::form_clusters(axis_vectors::AxisLines& axis, const Geometry& g) {
  if (blocks_in_head(g) < 2 || axis.groups < 2) return;
  axis.cluster = 2;
  divide(axis, blocks_in_head(g) / 2 * 2);
  axis.chunks = round_up(axis.chunks, 2);  // a head's last block may be without lines
}

void axis_vectors::dissolve_clusters(axis_vectors::AxisLines& axis) {
  axis.chunks = axis.partial_sums();
  axis.chunk *= axis.cluster;
  axis.cluster = 1;
}

axis_vectors::Params axis_vector_params(const Geometry& geometry, const ConstView& q,
                                        const ConstView& k, const Encoding& encoding) {
  axis_vectors::Params p{};
  p.geometry = geometry;
  p.q = q;
  p.k = k;
  p.span = encoding.span;
  p.sets = sets_of(encoding);
  p.first_from_q = encoding.source != Source::k;
  const Tables& first = p.first_from_q ? encoding.q_tables : encoding.k_tables;
  p.tables[0][0] = first.x;
  p.tables[0][1] = first.y;
  p.tables[1][0] = encoding.k_tables.x;
  p.tables[1][1] = encoding.k_tables.y;
  p.table_head_stride = encoding.tables_per_head ? encoding.positions * geometry.head_size : 0;
  p.gate_scale = encoding.gate_scale;
  p.gate_offset = encoding.gate_offset;
  for (int axis = 0; axis < 2; ++axis)
    p.axes[axis] = axis_vectors::axis_lines(geometry, encoding.span, encoding.positions, axis == 1);
  return p;
}

}  // namespace sape2::kernels::cuda
