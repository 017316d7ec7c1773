#include "sape2/data/mask.h"

namespace sape2::data {
namespace {

constexpr std::array<MaskColour, 12> kColours{{{0, 0, 0},
                                               {230, 97, 1},
                                               {31, 120, 180},
                                               {51, 160, 44},
                                               {227, 26, 28},
                                               {106, 61, 154},
                                               {255, 217, 47},
                                               {0, 158, 160},
                                               {231, 84, 166},
                                               {140, 86, 60},
                                               {166, 206, 227},
                                               {178, 223, 138}}};

}  // namespace

MaskColour mask_colour(std::int64_t index) {
  const auto count = static_cast<std::int64_t>(kColours.size());
  // After the first round the background's black is left out.
  return kColours[static_cast<std::size_t>(index < count ? index : 1 + (index - 1) % (count - 1))];
}

}  // namespace sape2::data
