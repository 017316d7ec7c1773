#pragma once

#include "sape2/kernels/linear.h"

#include <cstdint>

namespace sape2::kernels {

/// Outputs of a panel: one AVX-512 vector, two of AVX2, four of NEON. The layout is the same for
/// all, so that packed weights do not depend on the target that reads them.
inline constexpr std::int64_t kPanel = 16;

constexpr std::int64_t panels_of(std::int64_t outputs) {
  return (outputs + kPanel - 1) / kPanel;
}

/// A panel of weights on its way into the second-level cache, a line at a time.
class PanelFetch {
 public:
  /// `panels` begin at `first`; none where `index` is negative. It may lie behind the last one.
  PanelFetch(const char* first, std::int64_t panel_bytes, std::int64_t index)
      : next_(reinterpret_cast<std::uintptr_t>(first) +
              static_cast<std::uintptr_t>(index < 0 ? 0 : index * panel_bytes)),
        step_(index < 0 ? 0 : 64) {}

  void fetch_line() {
    // An address, since a pointer may not go past the last panel, and a prefetch may.
    // NOLINTNEXTLINE(performance-no-int-to-ptr)
    __builtin_prefetch(reinterpret_cast<const void*>(next_), 0, 2);
    next_ += step_;
  }

 private:
  std::uintptr_t next_, step_;
};

/// One layer's product: what all its blocks share.
template <typename Inputs>
struct LinearProduct {
  LinearProduct(const PackedWeights& packed, Inputs inputs, Rows outputs,
                const LinearEpilogue& after)
      : weights(packed), x(inputs), y(outputs), epilogue(after) {}

  const char* panel(std::int64_t index) const {
    return static_cast<const char*>(weights.data()) + index * panel_bytes;
  }
  PanelFetch fetch(std::int64_t index) const { return {panel(0), panel_bytes, index}; }

  const PackedWeights& weights;
  Inputs x;
  Rows y;
  const LinearEpilogue& epilogue;
  std::int64_t panels = panels_of(weights.outputs());
  std::int64_t panel_bytes = static_cast<std::int64_t>(weights.bytes()) / panels;
};

// The functions of sape2/kernels/linear.h for the best SIMD target, arguments checked.
void linear_rows(const PackedWeights& weights, std::int64_t rows, ConstRows x, Rows y,
                 const LinearEpilogue& epilogue);
/// A block of sums, (rows, columns), contiguous, through the epilogue into y; its columns begin at
/// `output` of `outputs`.
void finish_block(const float* sums, int rows, int columns, std::int64_t outputs, std::int64_t row,
                  std::int64_t output, Rows y, const LinearEpilogue& epilogue);
void normalise_rows(const LayerNormParameters& parameters, std::int64_t rows, std::int64_t width,
                    ConstRows x, Rows y, ConstRows added);
void rotate_rows(std::int64_t rows, std::int64_t width, Rows x, ConstRows turns);

}  // namespace sape2::kernels
