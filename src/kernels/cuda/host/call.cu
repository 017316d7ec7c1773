#include "kernels/cuda/axis_vectors/params.h"
#include "kernels/cuda/axis_vectors/specialized/kernels.h"
#include "kernels/cuda/common/tile.cuh"
#include "kernels/cuda/host/call.h"
#include "kernels/cuda/host/device.h"
#include "kernels/cuda/host/launch.h"
#include "kernels/cuda/host/params.h"

#include <algorithm>

namespace sape2::kernels::cuda {

std::size_t element_bytes(DType dtype) {
  return dtype == DType::float32 ? 4 : 2;
}

std::string refusal(const Shape& shape, DType) {
  if (shape.head_size > kLargestHead)
    return "the CUDA kernels take heads of up to " + std::to_string(kLargestHead) +
           " channels, and head_size is " + std::to_string(shape.head_size) +
           "; use the reference operators";
  if (shape.tokens() > kMostTokens)
    return "the CUDA kernels take up to " + std::to_string(kMostTokens) +
           " tokens, and there are " + std::to_string(shape.tokens()) +
           "; use fewer, larger patches";
  return {};
}

std::string refusal(const Shape& shape, DType dtype, Form form, std::int64_t sets) {
  if (auto text = refusal(shape, dtype); !text.empty()) return text;
  const std::int64_t longest = std::max(shape.rows, shape.cols);
  if (longest > kLongestLine)
    return "the CUDA kernels take grids of up to " + std::to_string(kLongestLine) +
           " rows and columns, and there are " + std::to_string(shape.rows) + " × " +
           std::to_string(shape.cols) + "; use the reference operators";
  // What a block keeps in shared memory: stage 1 backward, see axis_vectors/generic/backward.cuh,
  // and the backward pass over distances, see attention_sm80/backward.cuh.
  const std::int64_t element = element_bytes(dtype), head = shape.head_size <= 64 ? 64 : 128;
  const std::int64_t padding = element == 4 ? 32 : 16, pitch = head * element + padding;
  const std::int64_t line = (longest + 15) / 16 * 16, rows = std::max<std::int64_t>(kRowTile, line);
  const std::int64_t stage_one = rows * (2 * pitch + line * element + padding + 4) +
                                 (element == 4 ? 0 : (2 * longest + 16) * pitch) +
                                 16 * (3 * longest + 24) * 4 + 2048;
  if (stage_one > shared_memory_limit())
    return "axis vectors of " + std::to_string(shape.rows) + " × " + std::to_string(shape.cols) +
           " patches with head size " + std::to_string(shape.head_size) +
           " need more shared memory than the device has; use the reference operators";
  const std::int64_t tile = pitch * (2 * 64 + 4 * 32);
  const std::int64_t vectors =
      (round_up(shape.rows, 16) + round_up(shape.cols, 16) + 16) * element * (64 + 2 * 32) * sets;
  if (form == Form::distance && tile + vectors + 8192 > shared_memory_limit())
    return "the distance form with " + std::to_string(shape.rows) + " × " +
           std::to_string(shape.cols) + " patches and head size " +
           std::to_string(shape.head_size) +
           " needs more shared memory than the device has; use the reference operators";
  return {};
}

namespace {

void refuse(const std::string& sentence) {
  if (!sentence.empty()) throw Error(sentence);
}

}  // namespace

void check_shape(const Shape& shape, DType dtype) {
  for (const std::int64_t size : {shape.rows, shape.cols, shape.prefix})
    if (size > kMostTokens)
      refuse("the grid of " + std::to_string(shape.rows) + " × " + std::to_string(shape.cols) +
             " patches behind " + std::to_string(shape.prefix) +
             " prefix tokens is too large; up to " + std::to_string(kMostTokens) +
             " tokens were expected");
  if (shape.images < 0 || shape.heads < 1 || shape.rows < 1 || shape.cols < 1 || shape.prefix < 0 ||
      shape.head_size < 1)
    refuse("the shape has images " + std::to_string(shape.images) + ", heads " +
           std::to_string(shape.heads) + ", rows " + std::to_string(shape.rows) + ", cols " +
           std::to_string(shape.cols) + ", prefix " + std::to_string(shape.prefix) +
           ", head_size " + std::to_string(shape.head_size) +
           "; only images and prefix may be 0, and none negative");
  refuse(refusal(shape, dtype));
}

void check_shape(const Shape& shape, DType dtype, Form form, std::int64_t sets) {
  check_shape(shape, dtype);
  if (sets != 1 && sets != 2)
    refuse("there are " + std::to_string(sets) + " sets of axis vectors; 1 or 2 were expected");
  refuse(refusal(shape, dtype, form, sets));
}

void check_encoding(const Encoding& encoding) {
  const bool suffix = encoding.span == Span::suffix;
  if (suffix ? encoding.positions < 2 : encoding.positions < 1 || encoding.positions % 2 == 0)
    refuse("the tables have " + std::to_string(encoding.positions) + " positions; " +
           (suffix ? "Span::suffix needs at least 2" : "Span::between needs an odd number"));
}

Geometry geometry_of(const Shape& shape, DType dtype, std::initializer_list<ConstView> views) {
  const std::int64_t bytes = element_bytes(dtype);
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
