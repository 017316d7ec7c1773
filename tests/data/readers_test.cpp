#include "data/readers/readers.h"

#include "sape2/components.h"
#include "sape2/data/image.h"
#include "sape2/data/locations.h"

#include "data/own_roots.h"
#include "data/tiny_files.h"
#include "support/error_text.h"
#include "support/scratch_folder.h"

#include <ATen/ATen.h>

#include <fstream>

namespace sape2::data {
namespace {

namespace fs = std::filesystem;
using namespace sape2::testing;

void overwrite(const fs::path& path, std::int64_t at, std::uint8_t value) {
  Bytes bytes = read_file(path, 1 << 24);
  bytes.at(at) = value;
  write_file(path, bytes);
}

TEST(Cifar, ReadsEveryByteOfEveryFile) {
  const ScratchFolder scratch;
  const CifarLayout layout = test::tiny_cifar10();
  test::write_cifar(layout, scratch.path());
  const Dataset train = read_cifar(layout, scratch.path(), Split::train);
  ASSERT_EQ(train.images.sizes(), (at::IntArrayRef{100, 3, 32, 32}));
  EXPECT_EQ(train.images.scalar_type(), at::kByte);
  EXPECT_EQ(train.class_names.at(9), "truck");
  const auto* pixels = train.images.data_ptr<std::uint8_t>();
  for (std::int64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(train.labels[i].item<std::int64_t>(), i % 10);
    for (std::int64_t place = 0; place < 3072; ++place) {
      ASSERT_EQ(pixels[i * 3072 + place], test::cifar_byte(i, place));
    }
  }
  EXPECT_EQ(read_cifar(layout, scratch.path(), Split::test).size(), 20);
}

TEST(Cifar, Takes100FineLabelsAndTheNamesFile) {
  const ScratchFolder scratch;
  const CifarLayout layout = test::tiny_cifar100();
  test::write_cifar(layout, scratch.path());
  EXPECT_EQ(read_cifar(layout, scratch.path(), Split::train).class_names.at(99), "worm");
  std::ofstream names(scratch.path() / "fine_label_names.txt");
  for (int i = 0; i < 100; ++i) names << "name" << i << "\n";
  names.close();
  const Dataset train = read_cifar(layout, scratch.path(), Split::train);
  EXPECT_EQ(train.class_names.at(99), "name99");
  EXPECT_EQ(train.labels[57].item<std::int64_t>(), 57);
  EXPECT_EQ(train.images[57][0][0][0].item<int>(), test::cifar_byte(57, 0));
}

TEST(Cifar, RefusesWhatIsNotTheOfficialLayout) {
  const ScratchFolder scratch;
  const CifarLayout layout = test::tiny_cifar10();
  const auto sentence = [&](Split split) {
    return error_text([&] { read_cifar(layout, scratch.path(), split); });
  };
  expect_contains(sentence(Split::test), "there is no file");

  test::write_cifar(layout, scratch.path());
  const fs::path third = scratch.path() / "data_batch_3.bin";
  const Bytes whole = read_file(third, 1 << 24);
  // Cut at the end of a record, too: only the count tells.
  write_file(third, std::span(whole).first(19 * 3073));
  std::string text = sentence(Split::train);
  expect_contains(text, "data_batch_3.bin");
  expect_contains(text, "truncated");
  Bytes longer = whole;
  longer.push_back(0);
  write_file(third, longer);
  expect_contains(sentence(Split::train), "too large");
  write_file(third, whole);
  overwrite(third, 5 * 3073, 10);
  expect_contains(sentence(Split::train), "record 5");
  expect_contains(sentence(Split::train), "label 10");

  test::write_cifar(layout, scratch.path());
  overwrite(scratch.path() / "test_batch.bin", 4 * 3073, 3);
  overwrite(scratch.path() / "test_batch.bin", 14 * 3073, 3);
  expect_contains(sentence(Split::test), "no image of the class 4 (\"deer\")");

  std::ofstream(scratch.path() / "batches.meta.txt") << "cat\ndog\n";
  expect_contains(sentence(Split::train), "names 2 classes, expected 10");
}

TEST(Idx, ReadsGzippedAndPlainFiles) {
  const ScratchFolder scratch;
  const IdxLayout layout = test::tiny_idx();
  test::write_idx(layout, scratch.path());
  const Dataset train = read_idx(layout, scratch.path(), Split::train);
  ASSERT_EQ(train.images.sizes(), (at::IntArrayRef{30, 1, 28, 28}));
  EXPECT_EQ(train.images[2][0][3][4].item<int>(), (2 * 784 + 3 * 28 + 4) * 13 % 256);
  EXPECT_EQ(train.labels[13].item<std::int64_t>(), 3);
  for (const Split split : {Split::train, Split::test}) {
    for (const std::string& name : {idx_images_file(split), idx_labels_file(split)}) {
      const fs::path gzipped = scratch.path() / (name + ".gz");
      write_file(scratch.path() / name, read_maybe_gzip(gzipped, 1 << 24));
      fs::remove(gzipped);
    }
  }
  EXPECT_TRUE(read_idx(layout, scratch.path(), Split::train).images.equal(train.images));
}

TEST(Idx, RefusesDamagedFiles) {
  const ScratchFolder scratch;
  const IdxLayout layout = test::tiny_idx();
  const fs::path images = scratch.path() / "t10k-images-idx3-ubyte.gz";
  const fs::path labels = scratch.path() / "t10k-labels-idx1-ubyte.gz";
  const auto sentence = [&] {
    return error_text([&] { read_idx(layout, scratch.path(), Split::test); });
  };
  const auto write_images = [&](const std::vector<std::uint32_t>& shape, std::size_t bytes) {
    write_file(images, test::gzipped(test::idx_bytes(shape, Bytes(bytes))));
  };
  test::write_idx(layout, scratch.path());
  const Bytes whole = read_file(images, 1 << 24);
  write_file(images, std::span(whole).first(whole.size() / 2));
  expect_contains(sentence(), "truncated or damaged");
  write_images({20, 28, 28}, 20 * 784 - 1);
  expect_contains(sentence(), "truncated");
  write_images({20, 28, 28}, 20 * 784 + 1);
  expect_contains(sentence(), "more than");
  write_images({20, 28, 27}, 20 * 784);
  expect_contains(sentence(), "20 × 28 × 27");
  write_images({20, 784}, 20 * 784);
  expect_contains(sentence(), "0x00000802");
  write_file(images, Bytes{});
  expect_contains(sentence(), "too few for an IDX header");
  write_file(images, whole);
  Bytes wrong(20);
  for (std::size_t i = 0; i < wrong.size(); ++i) wrong[i] = static_cast<std::uint8_t>(i % 10);
  wrong[7] = 200;
  write_file(labels, test::gzipped(test::idx_bytes({20}, wrong)));
  expect_contains(sentence(), "record 7");
  wrong.assign(20, 1);
  write_file(labels, test::gzipped(test::idx_bytes({20}, wrong)));
  expect_contains(sentence(), "no image of the class 0");
}

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

TEST(Catalogue, MakesTheNameOfAFolderAbsolute) {
  const std::string here = fs::current_path().native();
  EXPECT_EQ(absolute_name("folder:photos"), "folder:" + here + "/photos");
  EXPECT_EQ(absolute_name("folder:./a/../photos"), "folder:" + here + "/photos");
  EXPECT_EQ(absolute_name("folder:/photos"), "folder:/photos");
  for (const char* name : {"cifar10", "folder", "folder:"}) EXPECT_EQ(absolute_name(name), name);
}

TEST(Catalogue, AnswersUnknownNamesWithTheNearest) {
  expect_contains(error_text([] { load_dataset("cifar-10", Split::train); }), "\"cifar10\"");
  expect_contains(error_text([] { load_dataset("imagenet-21k", Split::train); }), "fashion-mnist");
  expect_contains(error_text([] { load_dataset("folder", Split::train); }), "folder:PATH");
}

TEST(Catalogue, SaysWhereItLookedAndWhatToDo) {
  const ScratchFolder scratch;
  const test::OwnRoots roots(scratch.path());
  const std::string text = error_text(
      [&] { load_dataset("cifar100", Split::train, {.root = scratch.path() / "root"}); });
  for (const char* part : {"root", "data", "cache/sape2", "sape2 data get cifar100"}) {
    expect_contains(text, part);
  }
  create_folder(scratch.path() / "root/cifar-100-binary");
  write_file(scratch.path() / "root/cifar-100-binary/train.bin", Bytes(10));
  expect_contains(error_text([&] {
                    load_dataset("cifar100", Split::train, {.root = scratch.path() / "root"});
                  }),
                  "truncated");
}

TEST(Resized, KeepsFlatImagesAndTheRest) {
  Dataset dataset{.name = "x",
                  .images = at::full({2, 3, 8, 8}, 77, at::kByte),
                  .labels = at::zeros({2}, at::kLong),
                  .class_names = {"a", "b"}};
  const Dataset larger = resized(dataset, 12, 20);
  EXPECT_EQ(larger.images.sizes(), (at::IntArrayRef{2, 3, 12, 20}));
  EXPECT_TRUE(larger.images.eq(77).all().item<bool>());
  EXPECT_EQ(images_per_class(larger), (std::vector<std::int64_t>{2, 0}));
}

}  // namespace
}  // namespace sape2::data
