#include "sape2/components.h"
#include "sape2/data/image.h"

#include "data/files.h"
#include "data/readers/readers.h"
#include "support/error_text.h"
#include "support/scratch_folder.h"

#include <ATen/ATen.h>

#include <fstream>

namespace sape2::data {
namespace {

namespace fs = std::filesystem;
using namespace sape2::testing;

class Folder : public ::testing::Test {
 protected:
  void SetUp() override {
#if !SAPE2_HAVE_IMAGES
    GTEST_SKIP() << "this build reads no images";
#endif
  }

  void add_image(const std::string& name, std::uint8_t value, std::int64_t height = 20,
                 std::int64_t width = 30) {
    const fs::path path = scratch_.path() / name;
    create_folder(path.parent_path());
    write_png(path, {height, width, 3, Bytes(static_cast<std::size_t>(height * width * 3), value)});
  }

  Dataset read(Split split, LoadOptions options = {}) {
    return read_folder(scratch_.path(), split, options);
  }
  std::string sentence(Split split = Split::train, LoadOptions options = {}) {
    return error_text([&] { read(split, options); });
  }

  ScratchFolder scratch_;
};

TEST_F(Folder, ReadsClassesInTheOrderOfTheirNames) {
  add_image("train/dog/1.png", 10);
  add_image("train/cat/b.png", 21);
  add_image("train/cat/a.PNG", 20);
  add_image("val/dog/1.png", 30);
  add_image("val/cat/1.png", 40, 5, 7);
  std::ofstream(scratch_.path() / "train/cat/notes.txt") << "not an image";
  const Dataset train = read(Split::train, {.image_size = 16});
  ASSERT_EQ(train.images.sizes(), (at::IntArrayRef{3, 3, 16, 16}));
  EXPECT_EQ(train.class_names, (std::vector<std::string>{"cat", "dog"}));
  EXPECT_EQ(train.images[0][0][8][8].item<int>(), 20);
  EXPECT_EQ(train.images[1][2][8][8].item<int>(), 21);
  EXPECT_EQ(train.images[2][1][15][15].item<int>(), 10);
  EXPECT_EQ(train.labels[2].item<std::int64_t>(), 1);
  const Dataset test = read(Split::test, {.image_size = 16});
  EXPECT_EQ(test.images[0][0][0][0].item<int>(), 40);
}

TEST_F(Folder, SplitsByASeedWithoutOverlap) {
  for (int i = 0; i < 10; ++i) {
    add_image("cat/" + std::to_string(i) + ".png", static_cast<std::uint8_t>(i));
    add_image("dog/" + std::to_string(i) + ".png", static_cast<std::uint8_t>(100 + i));
  }
  const auto values = [&](Split split, std::uint64_t seed) {
    const Dataset part = read(split, {.image_size = 1, .seed = seed, .test_share = 0.3});
    std::vector<int> found;
    for (std::int64_t i = 0; i < part.size(); ++i) {
      found.push_back(part.images[i][0][0][0].item<int>());
    }
    return found;
  };
  const auto train = values(Split::train, 1), test = values(Split::test, 1);
  EXPECT_EQ(train.size(), 14u);
  EXPECT_EQ(test.size(), 6u);
  std::vector<int> both = train;
  both.insert(both.end(), test.begin(), test.end());
  std::sort(both.begin(), both.end());
  EXPECT_EQ(std::unique(both.begin(), both.end()) - both.begin(), 20);
  EXPECT_EQ(test, values(Split::test, 1));
  EXPECT_NE(test, values(Split::test, 2));
}

TEST_F(Folder, RefusesWhatItCannotUse) {
  expect_contains(sentence(), "0 class folders");
  add_image("train/cat/1.png", 1);
  expect_contains(sentence(), "neither \"test\" nor \"val\"");
  add_image("test/cat/1.png", 1);
  expect_contains(sentence(), "1 class folder");
  add_image("train/dog/1.png", 1);
  expect_contains(sentence(), "do not hold the same class folders");
  create_folder(scratch_.path() / "test/dog");
  expect_contains(sentence(Split::test), "holds no PNG or JPEG file");
  expect_contains(sentence(Split::test), "dog");
  add_image("test/dog/1.png", 1);
  EXPECT_EQ(read(Split::test).size(), 2);
  std::ofstream(scratch_.path() / "train/dog/broken.jpg") << "\xFF\xD8\xFF and nothing more";
  expect_contains(sentence(), "broken.jpg");
  fs::remove(scratch_.path() / "train/dog/broken.jpg");
  std::ofstream(scratch_.path() / "train/dog/moving.gif") << "GIF89a";
  expect_contains(sentence(), "moving.gif");
  expect_contains(sentence(Split::train, {.test_share = 1.5}), "1.5");
  expect_contains(error_text([&] { read_folder(scratch_.path() / "no", Split::train, {}); }),
                  "there is no folder");
}

TEST_F(Folder, RefusesClassesThatNoModelCanName) {
  add_image("cat/1.png", 1);
  add_image("cat/2.png", 2);
  std::error_code error;
  fs::create_directory(scratch_.path() / "d\xFFg", error);
  if (error) GTEST_SKIP() << "this file system takes names of UTF-8 only";
  add_image("d\xFFg/1.png", 3);
  add_image("d\xFFg/2.png", 4);
  expect_contains(sentence(), "the class name \"d\\xffg\" is not UTF-8");
}

TEST_F(Folder, NamesALoopOfLinks) {
  add_image("train/cat/1.png", 1);
  add_image("train/dog/1.png", 1);
  add_image("test/cat/1.png", 1);
  add_image("test/dog/1.png", 1);
  fs::create_symlink("loop.png", scratch_.path() / "train/dog/loop.png");
  expect_contains(sentence(), "dog/loop.png\": Too many levels of symbolic links");
  fs::remove(scratch_.path() / "train/dog/loop.png");
  fs::create_symlink("bird", scratch_.path() / "train/bird");
  expect_contains(sentence(), "train/bird\": Too many levels of symbolic links");
  fs::create_symlink("self", scratch_.path() / "self");
  expect_contains(error_text([&] { read_folder(scratch_.path() / "self", Split::train, {}); }),
                  "self\": Too many levels of symbolic links");
}

TEST_F(Folder, NeedsTwoImagesAClassToSplit) {
  add_image("cat/1.png", 1);
  add_image("dog/1.png", 1);
  expect_contains(sentence(), "holds one image");
}

}  // namespace
}  // namespace sape2::data
