#include "sape2/data/image.h"

#include "sape2/data/random.h"

#include "data/encoders.h"
#include "support/error_text.h"
#include "support/scratch_folder.h"

#include <png.h>

namespace sape2::data {
namespace {

using namespace sape2::testing;

std::vector<int> pixel(const Image& image, std::int64_t y, std::int64_t x) {
  const auto* at = &image.pixels.at((y * image.width + x) * image.channels);
  return {at, at + image.channels};
}

std::string sentence(const Bytes& bytes) {
  return error_text([&] { decode_image(bytes, "odd\nname.png"); });
}

Image random_image(std::int64_t height, std::int64_t width, std::int64_t channels) {
  Image image{height, width, channels, {}};
  Draws draws(3, 0, 0, Purpose::shapes);
  for (std::int64_t i = 0; i < height * width * channels; ++i) {
    image.pixels.push_back(static_cast<std::uint8_t>(draws.below(256)));
  }
  return image;
}

// Four flat quarters, so that JPEG's loss stays small and turning shows.
Image quarters() {
  Image image{16, 32, 3, {}};
  const std::uint8_t colours[4][3] = {{200, 30, 30}, {30, 200, 30}, {30, 30, 200}, {220, 220, 40}};
  for (int y = 0; y < 16; ++y) {
    for (int x = 0; x < 32; ++x) {
      const auto& colour = colours[2 * (y / 8) + x / 16];
      image.pixels.insert(image.pixels.end(), colour, colour + 3);
    }
  }
  return image;
}

void expect_near(const std::vector<int>& actual, const std::vector<int>& expected, int tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) EXPECT_NEAR(actual[i], expected[i], tolerance);
}

TEST(Png, RoundTripsThroughAFile) {
  const ScratchFolder scratch;
  const Image image = random_image(13, 7, 3);
  write_png(scratch.path() / "a.png", image);
  const Image back = read_image(scratch.path() / "a.png");
  EXPECT_EQ(back.height, 13);
  EXPECT_EQ(back.width, 7);
  EXPECT_EQ(back.pixels, image.pixels);
  EXPECT_EQ(scratch.file_count(), 1u);
}

TEST(Png, EveryKindBecomesRgb) {
  using Pixel = std::vector<int>;
  const Image grey16 =
      decode_image(test::png(1, 2, 16, PNG_COLOR_TYPE_GRAY, {0xFF, 0xFF, 0x80, 0x80}), "grey16");
  EXPECT_EQ(pixel(grey16, 0, 0), (Pixel{255, 255, 255}));
  EXPECT_EQ(pixel(grey16, 0, 1), (Pixel{128, 128, 128}));
  const Image rgb16 = decode_image(
      test::png(1, 1, 16, PNG_COLOR_TYPE_RGB, {0x00, 0x00, 0x40, 0x40, 0xC0, 0xC0}), "rgb16");
  EXPECT_EQ(pixel(rgb16, 0, 0), (Pixel{0, 64, 192}));
  const Image bits = decode_image(test::png(1, 8, 1, PNG_COLOR_TYPE_GRAY, {0b10100000}), "bits");
  EXPECT_EQ(pixel(bits, 0, 0), (Pixel{255, 255, 255}));
  EXPECT_EQ(pixel(bits, 0, 1), (Pixel{0, 0, 0}));
  const Image palette =
      decode_image(test::png(1, 3, 8, PNG_COLOR_TYPE_PALETTE, {2, 0, 1}), "palette");
  EXPECT_EQ(pixel(palette, 0, 0), (Pixel{0, 0, 255}));
  EXPECT_EQ(pixel(palette, 0, 2), (Pixel{0, 255, 0}));
}

TEST(Png, TransparentPixelsAreLaidOverWhite) {
  const Image rgba = decode_image(
      test::png(1, 3, 8, PNG_COLOR_TYPE_RGBA, {9, 8, 7, 255, 0, 0, 0, 0, 100, 0, 200, 51}), "rgba");
  EXPECT_EQ(pixel(rgba, 0, 0), (std::vector<int>{9, 8, 7}));
  EXPECT_EQ(pixel(rgba, 0, 1), (std::vector<int>{255, 255, 255}));
  EXPECT_EQ(pixel(rgba, 0, 2), (std::vector<int>{224, 204, 244}));
  const Image grey = decode_image(test::png(1, 1, 8, PNG_COLOR_TYPE_GRAY_ALPHA, {0, 0}), "la");
  EXPECT_EQ(pixel(grey, 0, 0), (std::vector<int>{255, 255, 255}));
}

TEST(Png, InterlacedIsTheSame) {
  const Image image = random_image(19, 23, 3);
  const Image back =
      decode_image(test::png(19, 23, 8, PNG_COLOR_TYPE_RGB, image.pixels, true), "adam7");
  EXPECT_EQ(back.pixels, image.pixels);
}

TEST(Jpeg, ColourGreyAndProgressive) {
  for (const bool progressive : {false, true}) {
    const Image back = decode_image(test::jpeg(quarters(), progressive), "a.jpg");
    EXPECT_EQ(back.height, 16);
    EXPECT_EQ(back.width, 32);
    expect_near(pixel(back, 3, 4), {200, 30, 30}, 6);
    expect_near(pixel(back, 12, 28), {220, 220, 40}, 6);
  }
  const Image grey{8, 8, 1, Bytes(64, 90)};
  expect_near(pixel(decode_image(test::jpeg(grey), "grey.jpg"), 3, 3), {90, 90, 90}, 3);
}

TEST(Jpeg, CmykIsConverted) {
  // Adobe's programs store 255 - ink: full light but half of the cyan's and no black.
  Image inks{8, 8, 4, {}};
  for (int i = 0; i < 64; ++i) inks.pixels.insert(inks.pixels.end(), {128, 255, 255, 255});
  expect_near(pixel(decode_image(test::jpeg(inks), "cmyk.jpg"), 4, 4), {128, 255, 255}, 4);
  for (std::size_t i = 3; i < inks.pixels.size(); i += 4) inks.pixels[i] = 128;
  expect_near(pixel(decode_image(test::jpeg(inks), "cmyk.jpg"), 4, 4), {64, 128, 128}, 4);
}

TEST(Jpeg, IsTurnedAsExifAsks) {
  // The colours of the corners, from the upper left clockwise, for each orientation.
  const std::vector<int> red{200, 30, 30}, green{30, 200, 30}, blue{30, 30, 200},
      yellow{220, 220, 40};
  const std::vector<std::vector<std::vector<int>>> corners{
      {red, green, yellow, blue}, {green, red, blue, yellow}, {yellow, blue, red, green},
      {blue, yellow, green, red}, {red, blue, yellow, green}, {blue, red, green, yellow},
      {yellow, green, red, blue}, {green, yellow, blue, red}};
  const Bytes plain = test::jpeg(quarters());
  for (int orientation = 1; orientation <= 8; ++orientation) {
    for (const bool little_endian : {false, true}) {
      const Image image =
          decode_image(test::with_orientation(plain, orientation, little_endian), "turned.jpg");
      EXPECT_EQ(image.width, orientation < 5 ? 32 : 16) << orientation;
      const auto& expected = corners[orientation - 1];
      expect_near(pixel(image, 2, 2), expected[0], 8);
      expect_near(pixel(image, 2, image.width - 3), expected[1], 8);
      expect_near(pixel(image, image.height - 3, image.width - 3), expected[2], 8);
      expect_near(pixel(image, image.height - 3, 2), expected[3], 8);
    }
  }
  EXPECT_EQ(decode_image(test::with_orientation(plain, 77, true), "odd.jpg").width, 32);
}

TEST(Images, EveryCutIsRefused) {
  const Bytes png = test::png(16, 32, 8, PNG_COLOR_TYPE_RGB, quarters().pixels);
  for (std::size_t size = 0; size < png.size(); ++size) {
    EXPECT_FALSE(
        sentence(Bytes(png.begin(), png.begin() + static_cast<std::ptrdiff_t>(size))).empty());
  }
  for (const bool progressive : {false, true}) {
    const Bytes jpeg = test::jpeg(random_image(24, 24, 3), progressive);
    for (std::size_t size = 0; size + 2 < jpeg.size(); size += 7) {
      EXPECT_FALSE(
          sentence(Bytes(jpeg.begin(), jpeg.begin() + static_cast<std::ptrdiff_t>(size))).empty());
    }
  }
}

TEST(Images, RefusalsNameTheFileInOneLine) {
  const std::string text = sentence({'G', 'I', 'F', '8', '9', 'a'});
  expect_contains(text, "odd\\x0aname.png");
  expect_contains(text, "neither PNG nor JPEG");
  expect_contains(sentence({}), "empty");
  expect_contains(error_text([] { read_image("/nowhere/at/all.png"); }), "/nowhere/at/all.png");
  expect_contains(error_text([] { read_image("/"); }), "is a folder, expected a file");
  expect_contains(error_text([] { read_image("/dev/null"); }), "not a regular file");
}

// A few hundred bytes that claim to be gigapixels.
TEST(Images, DecompressionBombsAreRefusedBeforeTheyUnfold) {
  Bytes bomb = test::png(1, 1, 8, PNG_COLOR_TYPE_GRAY, {0});
  bomb[16 + 1] = bomb[20 + 1] = 1;  // 65,537 × 65,537
  // The header's checksum no longer fits; either reason is a refusal.
  EXPECT_FALSE(sentence(bomb).empty());
  const std::int64_t side = 9000;
  const Bytes flat(static_cast<std::size_t>(side * side / 8 + side), 0);
  expect_contains(sentence(test::png(side, side, 1, PNG_COLOR_TYPE_GRAY, flat)), "9000 × 9000");
  Bytes jpeg = test::jpeg(quarters());
  for (std::size_t i = 0; i + 8 < jpeg.size(); ++i) {
    if (jpeg[i] == 0xFF && jpeg[i + 1] == 0xC0) {
      jpeg[i + 5] = jpeg[i + 7] = 0xFF;
      break;
    }
  }
  expect_contains(sentence(jpeg), "more than the 64 million allowed");
}

TEST(Images, DamagedBytesNeverCrash) {
  const Bytes originals[] = {
      test::png(16, 32, 8, PNG_COLOR_TYPE_RGB, quarters().pixels, true),
      test::png(8, 8, 16, PNG_COLOR_TYPE_RGBA, Bytes(512, 77)),
      test::jpeg(random_image(24, 24, 3), true),
      test::with_orientation(test::jpeg(quarters()), 6, true),
      test::jpeg(random_image(16, 16, 4)),
  };
  Draws draws(5, 0, 0, Purpose::shapes);
  int refused = 0, accepted = 0;
  for (int round = 0; round < 6000; ++round) {
    Bytes bytes = originals[round % std::size(originals)];
    const std::uint32_t changes = 1 + draws.below(4);
    for (std::uint32_t i = 0; i < changes; ++i) {
      bytes[draws.below(static_cast<std::uint32_t>(bytes.size()))] =
          static_cast<std::uint8_t>(draws.below(256));
    }
    try {
      const Image image = decode_image(bytes, "mutated");
      ASSERT_EQ(image.channels, 3);
      ASSERT_EQ(image.pixels.size(), static_cast<std::size_t>(image.height * image.width * 3));
      ++accepted;
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 100);
  EXPECT_GT(accepted, 100);
}

}  // namespace
}  // namespace sape2::data
