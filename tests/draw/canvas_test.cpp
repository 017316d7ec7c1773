#include "draw/line_chart.h"
#include "io/raw_file.h"
#include "support/file_bytes.h"
#include "support/scratch_folder.h"

#include <gtest/gtest.h>

namespace sape2::draw {
namespace {

using namespace sape2::testing;

std::uint32_t big_endian(const std::string& bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
  }
  return value;
}

TEST(Canvas, WritesAPngOfItsSize) {
  const ScratchFolder folder;
  Canvas(Format::png, 30, 20, 2 * kPointsPerInch).write(folder / "a.png");
  const std::string png = file_bytes(folder / "a.png");
  ASSERT_TRUE(png.starts_with("\x89PNG"));
  EXPECT_EQ(big_endian(png, 16), 60U);
  EXPECT_EQ(big_endian(png, 20), 40U);
}

TEST(Canvas, ClipsWhatItIsToldTo) {
  const auto drawn = [](double width) {
    Canvas canvas(Format::png, 20, 20, kPointsPerInch);
    canvas.clipped({0, 0, 5, 20}, [&] { canvas.fill({0, 0, width, 20}, kInk); });
    return std::move(canvas).bytes();
  };
  EXPECT_EQ(drawn(5), drawn(20));
  EXPECT_NE(drawn(5), drawn(2));
}

TEST(Canvas, TurnsTextUpright) {
  const auto drawn = [](bool upright) {
    Canvas canvas(Format::png, 60, 60, kPointsPerInch);
    canvas.text(30, 30, "word", {.upright = upright});
    return std::move(canvas).bytes();
  };
  EXPECT_NE(drawn(true), drawn(false));
}

TEST(LineChart, NamesItsLinesAndTicks) {
  Canvas canvas(Format::svg, 600, 400, kPointsPerInch);
  const ChartLine line{"training", {0, 0, 1}, 2, {{1, 2.3}, {2, 1.7}, {3, 1.2}}};
  const ChartLine dot{"test", {1, 0, 0}, 2, {{3, 1.3}}};
  draw_line_chart(canvas, {80, 80, 480, 240}, "loss", "epoch", {line, dot});
  const std::string with_dot = std::move(canvas).bytes();
  EXPECT_NE(with_dot.find("</svg>"), std::string::npos);
  Canvas other(Format::svg, 600, 400, kPointsPerInch);
  draw_line_chart(other, {80, 80, 480, 240}, "loss", "epoch", {line});
  EXPECT_LT(std::move(other).bytes().size(), with_dot.size());
}

}  // namespace
}  // namespace sape2::draw
