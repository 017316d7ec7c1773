#include "sape2/train/trainer.h"

#include "support/error_text.h"
#include "support/scratch_folder.h"
#include "train/support.h"

#include <gtest/gtest.h>
#include <sys/mount.h>

#include <cerrno>
#include <cstring>
#include <fstream>

namespace sape2::train::test {
namespace {

namespace fs = std::filesystem;
using namespace sape2::testing;

// A small file system in memory, where the user may mount one.
class TinyDisk {
 public:
  TinyDisk() {
    mounted_ = ::mount("none", folder_.path().c_str(), "tmpfs", 0, "size=4m") == 0;
    reason_ = std::strerror(errno);
  }
  ~TinyDisk() {
    if (mounted_) ::umount2(folder_.path().c_str(), MNT_DETACH);
  }

  bool mounted() const { return mounted_; }
  const std::string& reason() const { return reason_; }
  fs::path operator/(const std::string& name) const { return folder_ / name; }

  // Leaves so many bytes free.
  void fill_up_to(uint64_t free_bytes) {
    const auto space = fs::space(folder_.path()).available;
    ASSERT_GT(space, free_bytes);
    std::ofstream(folder_ / "filler") << std::string(space - free_bytes, 'x');
  }
  void free_again() { fs::remove(folder_ / "filler"); }

 private:
  ScratchFolder folder_;
  bool mounted_ = false;
  std::string reason_;
};

void train(const fs::path& path, int64_t stop_after = -1) {
  const RunConfig config = tiny_run();
  ShuffledSource source(corners(160, 1), config.recipe.batch_size, config.seed);
  const data::Dataset test = corners(60, 2);
  Observer observer;
  RunFolder folder =
      fs::exists(path / "config.json") ? RunFolder::open(path) : RunFolder::create(path, config);
  Trainer trainer(std::move(folder), source, test, observer);
  int64_t done = 0;
  trainer.run([&] { return ++done == stop_after; });
}

TEST(DiskFull, LosesNothingThatWasSaved) {
  TinyDisk disk;
  if (!disk.mounted()) {
    GTEST_SKIP() << "a full disk is tested on a tiny file system, which only root can mount: "
                 << disk.reason();
  }
  train(disk / "whole");
  const std::string expected = file_bytes(disk / "whole/last.safetensors");
  fs::remove_all(disk / "whole");
  // Different amounts let different files meet the full disk: log, events, picture, model,
  // checkpoint.
  for (const uint64_t free_bytes : {0, 4096, 3 * 4096, 40'000, 90'000, 150'000}) {
    train(disk / "run", 12);
    disk.fill_up_to(free_bytes);
    const std::string text = error_text([&] { train(disk / "run"); });
    expect_contains(text, "the disk is full");
    expect_contains(text, "intact");
    expect_contains(text, "--resume");
    disk.free_again();
    train(disk / "run");
    EXPECT_TRUE(file_bytes(disk / "run/last.safetensors") == expected) << free_bytes;
    fs::remove_all(disk / "run");
  }
}

TEST(DiskFull, ANewRunSaysSo) {
  TinyDisk disk;
  if (!disk.mounted()) {
    GTEST_SKIP() << "a full disk is tested on a tiny file system, which only root can mount: "
                 << disk.reason();
  }
  disk.fill_up_to(0);
  expect_contains(error_text([&] { train(disk / "run"); }), "full");
}

}  // namespace
}  // namespace sape2::train::test
