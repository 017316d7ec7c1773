#include "sape2/data/mask.h"
#include "sape2/data/shapes.h"

#include "data/files.h"
#include "data/get/md5.h"
#include "data/get/verify.h"
#include "data/own_roots.h"
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

/// Two pets in either split, in the official layout.
class Pets : public ::testing::Test {
 protected:
  void SetUp() override { make(scratch_ / "made"); }

  // All 37 breeds in either list, three of four of them dogs, as the names go.
  static void make(const fs::path& folder) {
    for (const char* part : {"images", "annotations/trimaps"}) create_folder(folder / part);
    for (const char* list : {"trainval", "test"}) {
      std::ofstream lines(folder / "annotations" / (std::string(list) + ".txt"));
      for (int breed = 1; breed <= 37; ++breed) {
        const std::string name = "Some_Breed" + std::to_string(breed) + "_" + list;
        lines << name << " " << breed << " " << (breed % 4 == 0 ? 1 : 2) << " 1\n";
        // PNG behind the name of a JPEG, as a few of the official files are.
        write_png(folder / "images" / (name + ".jpg"), {2, 4, 3, Pixels(24, 9)});
        write_png(folder / "annotations/trimaps" / (name + ".png"),
                  mask_of(2, 4, {1, 1, 3, 2, 1, 3, 2, 2}));
      }
    }
  }

  static Bytes archive_of(const fs::path& folder, const std::string& part) {
    std::vector<std::pair<std::string, Bytes>> members;
    for (const auto& entry : fs::recursive_directory_iterator(folder / part)) {
      if (!entry.is_regular_file()) continue;
      members.emplace_back(fs::relative(entry.path(), folder), read_file(entry.path(), 1 << 20));
    }
    members.emplace_back(part + "/../../outside.txt", Bytes(3, 'x'));
    members.emplace_back(part + "/._hidden.jpg", Bytes(3, 'x'));
    return test::tar_gz(members);
  }

  struct Quiet : GetObserver {
    void note(const std::string&) override {}
    void progress(const std::string&, std::uint64_t, std::uint64_t) override {}
  };

  ScratchFolder scratch_;
  test::OwnRoots roots_{scratch_.path()};
};

TEST_F(Pets, AreBreedsSpeciesOrMasks) {
  const fs::path folder = scratch_ / "made";
  const Dataset breeds = read_pets(folder, Split::train, PetsClasses::breeds, {.image_size = 8});
  EXPECT_EQ(breeds.classes(), 37);
  EXPECT_EQ(breeds.class_names[1], "Some Breed2");
  EXPECT_EQ(breeds.labels[36].item<std::int64_t>(), 36);
  const Dataset species = read_pets(folder, Split::test, PetsClasses::species, {.image_size = 8});
  EXPECT_EQ(species.class_names, (std::vector<std::string>{"cat", "dog"}));
  EXPECT_EQ(images_per_class(species), (std::vector<std::int64_t>{9, 28}));
  const Dataset masks = read_pets(folder, Split::train, PetsClasses::breeds,
                                  {.image_size = 4, .target = Target::masks});
  EXPECT_EQ(masks.class_names, (std::vector<std::string>{"background", "animal"}));
  EXPECT_TRUE(masks.masks[0][0].equal(at::tensor({1, 1, 255, 0}, at::kByte)));
  EXPECT_TRUE(masks.masks[0][3].equal(at::tensor({1, 255, 0, 0}, at::kByte)));
}

TEST_F(Pets, AreFoundByRootAndWithListsBesideTheImages) {
  const LoadOptions options{.root = scratch_ / "made", .image_size = 8, .target = Target::masks};
  EXPECT_EQ(load_dataset("oxford-pets", Split::train, options).size(), 37);
  const fs::path plain = scratch_ / "plain/oxford-pets";
  fs::create_directories(plain);
  fs::rename(scratch_ / "made/images", plain / "images");
  fs::rename(scratch_ / "made/annotations/trimaps", plain / "trimaps");
  for (const char* list : {"trainval.txt", "test.txt"}) {
    fs::rename(scratch_ / "made/annotations" / list, plain / list);
  }
  const LoadOptions other{.root = scratch_ / "plain", .image_size = 8};
  EXPECT_EQ(load_dataset("oxford-pets:species", Split::test, other).classes(), 2);
  expect_contains(
      error_text([&] { load_dataset("oxford-pets", Split::test, {.root = scratch_ / "nowhere"}); }),
      "sape2 data get oxford-pets");
}

TEST_F(Pets, WrongMasksAreNamed) {
  const fs::path folder = scratch_ / "made";
  const LoadOptions options{.image_size = 8, .target = Target::masks};
  const auto read = [&] { read_pets(folder, Split::test, PetsClasses::breeds, options); };
  const fs::path mask = folder / "annotations/trimaps/Some_Breed7_test.png";
  write_png(mask, mask_of(2, 4, {1, 1, 1, 2, 2, 0, 3, 3}));
  expect_contains(error_text(read), "label 0 at row 1, column 1");
  expect_contains(error_text(read), "3 (border)");
  write_png(mask, mask_of(4, 2, Pixels(8, 1)));
  expect_contains(error_text(read), "has 2 × 4 pixels, but its image");
  fs::remove(mask);
  expect_contains(error_text(read), "has no mask");
  std::ofstream(folder / "annotations/test.txt") << "../../etc/passwd 1 1 1\n";
  expect_contains(error_text(read), "line 1");
}

TEST_F(Pets, GetUnpacksBothArchivesAndNothingElse) {
  OfficialFiles official = official_files("oxford-pets");
  official.tree->check = [](const fs::path& folder) { check_pets(folder, {37, 37}); };
  fs::create_directories(scratch_ / "data");
  for (RemoteFile& file : official.remote) {
    const Bytes archive = archive_of(scratch_ / "made", file.name.substr(0, file.name.find('.')));
    write_file(scratch_ / "data" / file.name, archive);
    file.md5 = md5_of(archive);
  }
  Quiet quiet;
  const auto get = [&] { return get_official(official, {.offline = true}, quiet); };
  const GetResult result = get();
  EXPECT_EQ(result.folder, scratch_ / "data/oxford-pets");
  expect_contains(result.origin, "unpacked from");
  EXPECT_EQ(get().origin, "already there");
  EXPECT_FALSE(fs::exists(scratch_ / "data/oxford-pets.part"));
  EXPECT_FALSE(fs::exists(result.folder / "images/._hidden.jpg"));
  EXPECT_FALSE(fs::exists(scratch_ / "data/outside.txt"));
  // A folder that lost a file is neither taken for whole nor written over.
  fs::remove(result.folder / "images/Some_Breed3_test.jpg");
  expect_contains(error_text(get), "Some_Breed3_test.jpg");
  expect_contains(error_text(get), "move it away");
}

TEST_F(Pets, GetRefusesADamagedArchive) {
  OfficialFiles official = official_files("oxford-pets");
  fs::create_directories(scratch_ / "data");
  for (const RemoteFile& file : official.remote) {
    write_file(scratch_ / "data" / file.name,
               archive_of(scratch_ / "made", file.name.substr(0, file.name.find('.'))));
  }
  Quiet quiet;
  expect_contains(error_text([&] { get_official(official, {.offline = true}, quiet); }),
                  "expected 5c4f3ee8e5d25df40f4fd59a7f44e54c");
}

}  // namespace
}  // namespace sape2::data
