#pragma once

#include <cstdint>
#include <type_traits>

namespace sape2::kernels {

/// Calls each(first, count) for pieces of [0, total) of at most `most`, all alike: 9 = 5 + 4, not
/// 8 + 1, which would starve the last piece.
template <typename Each>
void deal_out(std::int64_t total, int most, const Each& each) {
  std::int64_t first = 0;
  for (std::int64_t pieces = (total + most - 1) / most; pieces > 0; --pieces) {
    const auto count = static_cast<int>((total - first + pieces - 1) / pieces);
    each(first, count);
    first += count;
  }
}

/// Calls `call` with `number`, which is 1 … kMost, as a constant.
template <int kMost, typename Call>
void with_constant(int number, const Call& call) {
  if (number == kMost) {
    call(std::integral_constant<int, kMost>());
  } else if constexpr (kMost > 1) {
    with_constant<kMost - 1>(number, call);
  }
}

/// Cuts rows × panels into blocks of at most kMostRows × kMostPanels and calls
/// product.block<kRows, kPanels>(row, panel) for each: all rows for a few panels first, so that
/// their weights stay in the cache.
template <int kMostRows, int kMostPanels, typename Product>
void for_each_block(std::int64_t rows, std::int64_t panels, const Product& product) {
  deal_out(panels, kMostPanels, [&](std::int64_t panel, int panel_count) {
    with_constant<kMostPanels>(panel_count, [&](auto block_panels) {
      deal_out(rows, kMostRows, [&](std::int64_t row, int row_count) {
        with_constant<kMostRows>(row_count, [&](auto block_rows) {
          product.template block<block_rows(), block_panels()>(row, panel);
        });
      });
    });
  });
}

}  // namespace sape2::kernels
