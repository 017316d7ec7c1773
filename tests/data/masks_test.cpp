#include "sape2/data/mask.h"
#include "sape2/data/shapes.h"

#include "data/files.h"
#include "data/readers/readers.h"
#include "data/tiny_files.h"
#include "support/error_text.h"
#include "support/scratch_folder.h"

#include <ATen/ATen.h>

#include <fstream>

namespace sape2::data {
namespace {

namespace fs = std::filesystem;
using namespace sape2::testing;
using Pixels = std::vector<std::uint8_t>;

Image mask_of(std::int64_t height, std::int64_t width, Pixels pixels) {
  return {height, width, 1, std::move(pixels)};
}

TEST(Mask, IsResizedByTheNearestPixel) {
  const Image small = mask_of(2, 2, {1, 2, 3, 255});
  EXPECT_EQ(resize_nearest(small, 4, 4).pixels,
            (Pixels{1, 1, 2, 2, 1, 1, 2, 2, 3, 3, 255, 255, 3, 3, 255, 255}));
  // Middles of two pixels fall on the first and the last of three; of three, on 0, 2 and 4 of five.
  EXPECT_EQ(resize_nearest(mask_of(1, 3, {7, 8, 9}), 1, 2).pixels, (Pixels{7, 9}));
  EXPECT_EQ(resize_nearest(mask_of(1, 5, {0, 1, 2, 3, 4}), 1, 3).pixels, (Pixels{0, 2, 4}));
  // No class appears that was not there, whatever the sizes.
  for (const std::uint8_t pixel : resize_nearest(small, 5, 7).pixels) {
    EXPECT_TRUE(pixel == 1 || pixel == 2 || pixel == 3 || pixel == 255);
  }
}

// The one way of whole data sets and that of files agree, on sizes that do not divide as well.
TEST(Mask, DataSetsAreResizedAsFilesAre) {
  Dataset dataset = with_masks(make_shapes({.count = 3}));
  const Dataset other = resized(dataset, 20, 45);
  ASSERT_EQ(other.masks.sizes(), (at::IntArrayRef{3, 20, 45}));
  for (std::int64_t i = 0; i < 3; ++i) {
    const at::Tensor whole = dataset.masks[i].contiguous();
    const auto* bytes = whole.data_ptr<std::uint8_t>();
    const Image expected = resize_nearest(mask_of(32, 32, {bytes, bytes + 32 * 32}), 20, 45);
    EXPECT_TRUE(other.masks[i].flatten().equal(at::tensor(expected.pixels, at::kByte)));
  }
}

TEST(Mask, FilesHoldNumbersOfClasses) {
  const ScratchFolder folder;
  const Image mask = mask_of(2, 3, {0, 1, 2, 2, 1, 0});
  const std::vector<MaskColour> colours{mask_colour(0), mask_colour(1), mask_colour(2)};
  write_mask(folder / "palette.png", mask, colours);
  EXPECT_EQ(read_mask(folder / "palette.png").pixels, mask.pixels);
  // As an image it is in colours.
  const Image seen = read_image(folder / "palette.png");
  EXPECT_EQ(seen.channels, 3);
  EXPECT_EQ(seen.pixels[3], colours[1][0]);
  write_png(folder / "grey.png", mask);
  EXPECT_EQ(read_mask(folder / "grey.png").pixels, mask.pixels);
  expect_contains(error_text([&] { encode_mask(mask, std::span(colours).first(2)); }), "a colour");
}

TEST(Mask, OtherFilesAreRefusedByName) {
  const ScratchFolder folder;
  write_png(folder / "colours.png", {1, 2, 3, Pixels(6, 0)});
  expect_contains(error_text([&] { read_mask(folder / "colours.png"); }), "colours.png");
  expect_contains(error_text([&] { read_mask(folder / "colours.png"); }), "numbers of classes");
  std::ofstream(folder / "a.jpg") << "\xFF\xD8\xFF";
  expect_contains(error_text([&] { read_mask(folder / "a.jpg"); }), "no PNG");
}

TEST(Mask, OverlayLeavesTheBackgroundAndShowsBoundariesInFullColour) {
  const Image image{1, 4, 3, Pixels(12, 100)};
  const Image seen = overlay(image, mask_of(1, 4, {0, 1, 1, 1}));
  EXPECT_EQ(Pixels(seen.pixels.begin(), seen.pixels.begin() + 3), Pixels(3, 100));
  EXPECT_EQ(seen.pixels[3], mask_colour(1)[0]);
  EXPECT_NE(seen.pixels[9], 100);
  EXPECT_NE(seen.pixels[9], mask_colour(1)[0]);
  EXPECT_THROW(overlay(image, mask_of(1, 3, {0, 1, 1})), Error);
}

TEST(Shapes, ComeWithTheirMasksAsClasses) {
  const Dataset dataset = load_dataset("shapes", Split::test, {.target = Target::masks});
  EXPECT_EQ(dataset.class_names, (std::vector<std::string>{"background", "object"}));
  EXPECT_FALSE(dataset.labels.defined());
  EXPECT_TRUE(dataset.masks.equal(make_shapes({.split = Split::test}).masks));
  EXPECT_EQ(images_per_class(dataset), (std::vector<std::int64_t>{1000, 1000}));
  EXPECT_TRUE(selected(dataset, at::tensor({5}, at::kLong)).masks[0].equal(dataset.masks[5]));
}

TEST(Masks, DataSetsWithoutThemSaySo) {
  const ScratchFolder scratch;
  test::write_cifar(test::tiny_cifar10(), scratch / "cifar10");
  expect_contains(error_text([&] {
                    load_dataset("cifar10", Split::train,
                                 {.root = scratch.path(), .target = Target::masks});
                  }),
                  "cifar10 has no masks");
}

/// A folder of four images with masks of three classes.
class MaskedFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    create_folder(scratch_ / "images");
    create_folder(scratch_ / "masks");
    for (int i = 0; i < 4; ++i) add("image" + std::to_string(i), {0, 1, 2, 255, 0, 1});
    std::ofstream(scratch_ / "classes.txt") << "ground\ntree\nsky\n";
  }

  void add(const std::string& name, const Pixels& mask) {
    write_png(scratch_ / ("images/" + name + ".png"), {2, 3, 3, Pixels(18, 50)});
    write_png(scratch_ / ("masks/" + name + ".png"), mask_of(2, 3, mask));
  }

  Dataset read(Split split = Split::train, std::int64_t size = 6) {
    return load_dataset("folder:" + scratch_.path().native(), split,
                        {.image_size = size, .test_share = 0.5, .target = Target::masks});
  }

  ScratchFolder scratch_;
};

TEST_F(MaskedFolder, IsReadWithTheNamesOfItsClasses) {
  const Dataset train = read(), test = read(Split::test);
  EXPECT_EQ(train.class_names, (std::vector<std::string>{"ground", "tree", "sky"}));
  EXPECT_EQ(train.size(), 2);
  EXPECT_EQ(test.size(), 2);
  // Stretched: three rows for each of two, two columns for each of three.
  EXPECT_TRUE(train.masks[0][0].equal(at::tensor({0, 0, 1, 1, 2, 2}, at::kByte)));
  EXPECT_TRUE(train.masks[0][5].equal(at::tensor({255, 255, 0, 0, 1, 1}, at::kByte)));
}

TEST_F(MaskedFolder, HasSplitsOfItsOwn) {
  for (const char* split : {"train", "val"}) {
    fs::create_directories(scratch_ / split);
    fs::copy(scratch_ / "images", scratch_ / split / "images");
    fs::copy(scratch_ / "masks", scratch_ / split / "masks");
  }
  EXPECT_EQ(read().size(), 4);
  EXPECT_EQ(read(Split::test).size(), 4);
}

TEST_F(MaskedFolder, AMaskOfAnotherSizeIsNamed) {
  write_png(scratch_ / "masks/image2.png", mask_of(3, 3, Pixels(9, 0)));
  const std::string text = error_text([&] {  // whichever half the draw put it into
    read(Split::train);
    read(Split::test);
  });
  expect_contains(text, "image2.png");
  expect_contains(text, "has 3 × 3 pixels, but its image");
}

TEST_F(MaskedFolder, AnUnknownLabelIsNamedWithItsPlace) {
  for (int i = 0; i < 4; ++i) add("image" + std::to_string(i), {0, 0, 0, 0, 3, 0});
  const std::string text = error_text([&] { read(); });
  expect_contains(text, "has the label 3 at row 1, column 1");
  expect_contains(text, "expected 0 … 2, or 255");
}

TEST_F(MaskedFolder, AMissingFileIsNamed) {
  fs::remove(scratch_ / "masks/image0.png");
  const auto either = [&] {
    read(Split::train);
    read(Split::test);
  };
  expect_contains(error_text(either), "has no mask: there is no file");
  expect_contains(error_text(either), "image0.png");
  add("image0", Pixels(6, 1));
  fs::remove(scratch_ / "images/image0.png");
  expect_contains(error_text(either), "has no image of that name");
  fs::remove_all(scratch_ / "masks");
  expect_contains(error_text(either), "images/ and masks/");
}

TEST_F(MaskedFolder, ClassesHaveToBeNamed) {
  fs::remove(scratch_ / "classes.txt");
  expect_contains(error_text([&] { read(); }), "one a line");
  std::ofstream(scratch_ / "classes.txt") << "alone\n";
  expect_contains(error_text([&] { read(); }), "names 1 class, expected 2");
  std::ofstream many(scratch_ / "classes.txt");
  for (int i = 0; i < 256; ++i) many << "class\n";
  many.close();
  expect_contains(error_text([&] { read(); }), "names 256 classes, expected 2");
}

// As many programs write them: 255 is the object. Nothing could be learnt from it here.
TEST_F(MaskedFolder, MasksOf0And255AreNoticed) {
  for (int i = 0; i < 4; ++i) add("image" + std::to_string(i), {0, 255, 255, 0, 0, 255});
  expect_contains(error_text([&] { read(); }), "255 is not counted");
}

}  // namespace
}  // namespace sape2::data
