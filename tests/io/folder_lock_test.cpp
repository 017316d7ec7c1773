#include "sape2/io/folder_lock.h"

#include "io/error_text.h"
#include "io/scratch_folder.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace sape2::io {
namespace {

TEST(FolderLock, IsHeldUntilTheLastCopyIsGone) {
  const test::ScratchFolder folder;
  auto lock = FolderLock::take(folder.path());
  ASSERT_TRUE(lock);
  EXPECT_FALSE(FolderLock::take(folder.path()));
  std::optional<FolderLock> copy = lock;
  lock.reset();
  EXPECT_FALSE(FolderLock::take(folder.path()));
  copy.reset();
  EXPECT_TRUE(FolderLock::take(folder.path()));
}

TEST(FolderLock, WaitsForWhoeverHoldsIt) {
  const test::ScratchFolder folder;
  auto lock = FolderLock::take(folder.path());
  std::atomic<bool> released = false;
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    released = true;
    lock.reset();
  });
  const FolderLock mine = FolderLock::await(folder.path());
  EXPECT_TRUE(released);
  other.join();
}

TEST(FolderLock, NeedsAFolder) {
  const test::ScratchFolder folder;
  test::expect_contains(test::error_text([&] { FolderLock::take(folder / "none"); }), "none");
}

}  // namespace
}  // namespace sape2::io
