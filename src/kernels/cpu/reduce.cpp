#include "cpu/reduce.h"

#include <algorithm>

namespace sape2::kernels {
namespace {

/// More chunks would balance no better and cost a partial gradient each.
constexpr std::int64_t kChunks = 256;

/// Arena::take rounds up to a line and leaves one spare.
constexpr std::size_t kArenaSlack = 32;

}  // namespace

Chunks::Chunks(const Shape& shape)
    : images(shape.images),
      heads(shape.heads),
      groups(std::min(shape.images, std::max<std::int64_t>(1, kChunks / shape.heads))) {}

GradientSums::GradientSums(const Chunks& chunks, const Layout& layout, int sets,
                           std::int64_t positions)
    : chunks_(chunks),
      layout_(layout),
      arena_(static_cast<std::size_t>(chunks.count() * sets) *
             (static_cast<std::size_t>(2 * positions * layout.ld) + kArenaSlack)),
      gradients_(static_cast<std::size_t>(chunks.count())) {
  for (ChunkGradients& chunk : gradients_) {
    for (int set = 0; set < sets; ++set) {
      chunk.tables[set] = arena_.take(static_cast<std::size_t>(2 * positions * layout.ld));
    }
  }
}

void GradientSums::write_scalar(double ChunkGradients::*member, float* target) const {
  if (target == nullptr) return;
  for (std::int64_t head = 0; head < chunks_.heads; ++head) {
    double sum = 0.0;
    for (std::int64_t group = 0; group < chunks_.groups; ++group) {
      sum += gradients_[static_cast<std::size_t>(head * chunks_.groups + group)].*member;
    }
    target[head] = static_cast<float>(sum);
  }
}

void GradientSums::write_gain(float* dgain) const {
  write_scalar(&ChunkGradients::gain, dgain);
}

void GradientSums::write_table(int set, int first, int rows, std::int64_t head,
                               float* target) const {
  if (target == nullptr) return;
  const std::int64_t begin = head < 0 ? 0 : head * chunks_.groups;
  const std::int64_t end = head < 0 ? chunks_.count() : begin + chunks_.groups;
  std::vector<double> sums(static_cast<std::size_t>(layout_.head_size));
  for (int r = 0; r < rows; ++r) {
    std::fill(sums.begin(), sums.end(), 0.0);
    for (std::int64_t chunk = begin; chunk < end; ++chunk) {
      const float* row = gradients_[static_cast<std::size_t>(chunk)].tables[set] +
                         static_cast<std::ptrdiff_t>(first + r) * layout_.ld;
      for (std::size_t c = 0; c < sums.size(); ++c) sums[c] += static_cast<double>(row[c]);
    }
    std::copy(sums.begin(), sums.end(),
              target + static_cast<std::ptrdiff_t>(r) * layout_.head_size);
  }
}

void GradientSums::write_encoding(const Encoding& encoding, const EncodingGradients& target) const {
  write_scalar(&ChunkGradients::gate_scale, target.dgate_scale);
  write_scalar(&ChunkGradients::gate_offset, target.dgate_offset);
  const int positions = static_cast<int>(encoding.positions);
  const std::int64_t size = encoding.positions * layout_.head_size;
  for (int set = 0; set < sets_of(encoding.source); ++set) {
    const TableGradients& tables =
        set_is_from_q(encoding.source, set) ? target.q_tables : target.k_tables;
    float* axes[2] = {tables.dx, tables.dy};
    for (int axis = 0; axis < 2; ++axis) {
      if (axes[axis] == nullptr) continue;
      if (!encoding.tables_per_head) write_table(set, axis * positions, positions, -1, axes[axis]);
      for (std::int64_t head = 0; encoding.tables_per_head && head < chunks_.heads; ++head) {
        write_table(set, axis * positions, positions, head, axes[axis] + head * size);
      }
    }
  }
}

}  // namespace sape2::kernels
