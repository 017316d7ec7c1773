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
/// product.block<kRows, kPanels>(row, panel, ahead) for each: all rows for a few panels first, so
/// that their weights stay in the cache. `ahead` is a panel whose turn comes next, to be fetched
/// meanwhile: one for each block of rows, -1 where there are more of these. Behind the last panel
/// it goes on counting: in a packed model the next layer's panels lie there.
template <int kMostRows, int kMostPanels, typename Product>
void for_each_block(std::int64_t rows, std::int64_t panels, const Product& product) {
  deal_out(panels, kMostPanels, [&](std::int64_t panel, int panel_count) {
    with_constant<kMostPanels>(panel_count, [&](auto block_panels) {
      int fetched = 0;
      deal_out(rows, kMostRows, [&](std::int64_t row, int row_count) {
        const std::int64_t ahead =
            fetched < panel_count ? panel + panel_count + fetched++ : std::int64_t{-1};
        with_constant<kMostRows>(row_count, [&](auto block_rows) {
          product.template block<block_rows(), block_panels()>(row, panel, ahead);
        });
      });
    });
  });
}

}  // namespace sape2::kernels
