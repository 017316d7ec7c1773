#include "sape2/explain/colours.h"

#include "sape2/base/error.h"

#include <gtest/gtest.h>

#include <cmath>

namespace sape2::explain {
namespace {

double lightness(const Rgb& colour) {
  return 0.30 * colour.red + 0.59 * colour.green + 0.11 * colour.blue;
}

TEST(Colours, DistancesRunFromWhiteToGreen) {
  const Rgb near = colour_at(ScaleKind::distance, Palette::green, 0);
  EXPECT_EQ(near.red + near.green + near.blue, 3);
  const Rgb far = colour_at(ScaleKind::distance, Palette::green, 1);
  EXPECT_GT(far.green, far.red + 0.1);
  EXPECT_GT(far.green, far.blue + 0.1);
}

TEST(Colours, ScalesFallInLightness) {
  for (const auto palette : {Palette::green, Palette::cividis}) {
    for (const auto kind : {ScaleKind::distance, ScaleKind::share, ScaleKind::gate}) {
      const auto table = colour_table(kind, palette, 33);
      for (std::size_t i = 1; i < table.size(); ++i) {
        EXPECT_LT(lightness(table[i]), lightness(table[i - 1])) << to_string(kind) << i;
      }
    }
  }
}

TEST(Colours, ABalancedScaleIsWhiteInTheMiddle) {
  EXPECT_NEAR(lightness(colour_at(ScaleKind::balanced, Palette::green, 0.5)), 1, 1e-9);
}

TEST(Colours, RangesFitTheirKind) {
  EXPECT_EQ(range_for(ScaleKind::balanced, -3, 1).high, 3);
  EXPECT_EQ(range_for(ScaleKind::distance, 0.5, 2).low, 0);
  EXPECT_EQ(range_for(ScaleKind::gate, 0.2, 0.4).high, 1);
  EXPECT_EQ(range_for(ScaleKind::distance, 0, 0).high, 1);
  EXPECT_EQ(range_for(ScaleKind::share, NAN, NAN).high, 1);
  EXPECT_EQ((ValueRange{-2, 2}.place_of(1)), 0.75);
}

TEST(Colours, NamesAreRead) {
  EXPECT_EQ(parse_palette("cividis"), Palette::cividis);
  EXPECT_THROW(parse_palette("grene"), Error);
}

}  // namespace
}  // namespace sape2::explain
