#include "sape2/data/image.h"
#include "sape2/data/mask.h"

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
        write_png(folder / "images" / (name + ".jpg"), {2, 4, 3, Bytes(24, 9)});
        write_png(folder / "annotations/trimaps" / (name + ".png"),
                  {2, 4, 1, {1, 1, 3, 2, 1, 3, 2, 2}});
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
  write_png(mask, {2, 4, 1, {1, 1, 1, 2, 2, 0, 3, 3}});
  expect_contains(error_text(read), "label 0 at row 1, column 1");
  expect_contains(error_text(read), "3 (border)");
  write_png(mask, {4, 2, 1, Bytes(8, 1)});
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
