#include "sape2/io/atomic_file.h"

#include "io/raw_file.h"
#include "support/error_text.h"
#include "support/file_bytes.h"
#include "support/scratch_folder.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <fstream>
#include <string>

namespace sape2::io::test {
namespace {

using namespace sape2::testing;

namespace fs = std::filesystem;

TEST(AtomicFile, AppearsOnlyWhenCommitted) {
  ScratchFolder folder;
  {
    AtomicFile file(folder / "f");
    file.write("ab");
    EXPECT_FALSE(fs::exists(folder / "f"));
    file.write("cd");
    file.commit();
    EXPECT_EQ(file_bytes(folder / "f"), "abcd");
  }
  EXPECT_EQ(folder.file_count(), 1u);
}

TEST(AtomicFile, LeavesTheOldFileWithoutCommit) {
  ScratchFolder folder;
  std::ofstream(folder / "f") << "old";
  { AtomicFile(folder / "f").write("new"); }
  EXPECT_EQ(file_bytes(folder / "f"), "old");
  EXPECT_EQ(folder.file_count(), 1u);
}

TEST(AtomicFile, ReplacesTheOldFileAndFollowsLinks) {
  ScratchFolder folder;
  std::ofstream(folder / "f") << "old";
  fs::create_symlink("f", folder / "link");
  AtomicFile file(folder / "link");
  file.write("new");
  file.commit();
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(file_bytes(folder / "f"), "new");
}

TEST(AtomicFile, IsWrittenAtOnce) {
  const ScratchFolder folder;
  write_file(folder / "f", "old");
  write_file(folder / "f", std::string_view("n\0w", 3));
  EXPECT_EQ(file_bytes(folder / "f"), std::string("n\0w", 3));
}

TEST(AtomicFile, RespectsTheUmaskAndLongNames) {
  ScratchFolder folder;
  const std::string name(255, 'n');
  const ::mode_t old_mask = ::umask(027);
  AtomicFile file(folder / name);
  ::umask(old_mask);
  file.commit();
  EXPECT_EQ(fs::status(folder / name).permissions(),
            fs::perms::owner_read | fs::perms::owner_write | fs::perms::group_read);
}

TEST(AtomicFile, EachImpossiblePlaceGetsASentence) {
  ScratchFolder folder;
  const auto open_text = [](const fs::path& path) {
    return error_text([&] { AtomicFile file(path); });
  };
  expect_contains(open_text(folder / "no" / "f"), "f\": there is no folder \"");
  expect_contains(open_text("/proc/f"), "no files can be made in \"/proc\"");
  expect_contains(open_text(folder.path()), "it is a folder, expected a file name");
  expect_contains(open_text(folder.path() / ""), "it is a folder, expected a file name");
  expect_contains(open_text(""), "expected a file name");
  expect_contains(open_text("/dev/null"), "\"/dev/null\": it exists and is not a regular file");
  expect_contains(open_text(folder / std::string(256, 'n')), "File name too long");
}

// A size limit stops a write half-way, as a full disk does.
TEST(AtomicFile, AWriteThatStopsHalfWayLeavesNothing) {
  ScratchFolder folder;
  std::ofstream(folder / "f") << "old";
  struct rlimit old_limit {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old_limit), 0);
  const auto old_handler = ::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit limit = {4096, old_limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  const std::string text = error_text([&] {
    AtomicFile file(folder / "f");
    file.write(std::string(10'000, 'x'));
  });
  ::setrlimit(RLIMIT_FSIZE, &old_limit);
  ::signal(SIGXFSZ, old_handler);
  expect_contains(text, "cannot write \"");
  expect_contains(text, "File too large");
  EXPECT_EQ(file_bytes(folder / "f"), "old");
  EXPECT_EQ(folder.file_count(), 1u);
}

}  // namespace
}  // namespace sape2::io::test
