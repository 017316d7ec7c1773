#include "sape2/data/dataset.h"

#include "data/files.h"
#include "data/own_roots.h"
#include "support/error_text.h"
#include "support/scratch_folder.h"

#include <ATen/ATen.h>

#include <filesystem>

namespace sape2::data {
namespace {

namespace fs = std::filesystem;
using namespace sape2::testing;

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
