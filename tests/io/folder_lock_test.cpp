#include "sape2/io/folder_lock.h"

#include "support/error_text.h"
#include "support/scratch_folder.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace sape2::io {
namespace {

using namespace sape2::testing;

TEST(FolderLock, IsHeldUntilTheLastCopyIsGone) {
  const ScratchFolder folder;
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
  const ScratchFolder folder;
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
  const ScratchFolder folder;
  expect_contains(error_text([&] { FolderLock::take(folder / "none"); }), "none");
}

}  // namespace
}  // namespace sape2::io
