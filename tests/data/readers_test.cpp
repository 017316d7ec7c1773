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

}  // namespace
}  // namespace sape2::data
