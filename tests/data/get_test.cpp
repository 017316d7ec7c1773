#include "sape2/data/get.h"

#include "sape2/components.h"
#include "sape2/data/locations.h"

#include "data/get/download.h"
#include "data/get/md5.h"
#include "data/get/verify.h"
#include "data/local_server.h"
#include "data/own_roots.h"
#include "data/tiny_files.h"
#include "support/error_text.h"
#include "support/scratch_folder.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace sape2::data {
namespace {

namespace fs = std::filesystem;
using namespace sape2::testing;

class Quiet : public GetObserver {
 public:
  void note(const std::string& line) override { notes.push_back(line); }
  void progress(const std::string&, std::uint64_t done, std::uint64_t total) override {
    EXPECT_LE(done, total);
    last = done;
  }

  std::vector<std::string> notes;
  std::uint64_t last = 0;
};

Bytes some_bytes(std::size_t count) {
  Bytes bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::uint8_t>(i * i >> 3);
  return bytes;
}

class Download : public ::testing::Test {
 protected:
  void SetUp() override {
#if !SAPE2_HAVE_DOWNLOAD
    GTEST_SKIP() << "this build cannot download";
#endif
    server_.files["a.bin"] = content_;
    remote_ = {"a.bin", server_.url("a.bin"), content_.size(), md5_of(content_)};
  }

  void fetch() {
    download(remote_, target(), quiet_);
  }
  fs::path target() const {
    return scratch_.path() / "a.bin";
  }
  fs::path partial() const {
    return scratch_.path() / "a.bin.part";
  }
  Bytes on_disk(const fs::path& path) const {
    return read_file(path, 1 << 24);
  }

  ScratchFolder scratch_;
  test::LocalServer server_;
  Bytes content_ = some_bytes(300'000);
  RemoteFile remote_;
  Quiet quiet_;
};

TEST_F(Download, FetchesAndReportsProgress) {
  fetch();
  EXPECT_EQ(on_disk(target()), content_);
  EXPECT_FALSE(fs::exists(partial()));
  EXPECT_EQ(quiet_.last, content_.size());
}

TEST_F(Download, GoesOnWhereItWasCutOff) {
  write_file(partial(), std::span(content_).first(200'000));
  fetch();
  EXPECT_EQ(on_disk(target()), content_);
  EXPECT_EQ(server_.range_requests, 1);
  EXPECT_EQ(server_.bytes_sent, 100'000u);
}

TEST_F(Download, SurvivesLostConnections) {
  server_.cuts = 3;
  fetch();
  EXPECT_EQ(on_disk(target()), content_);
  EXPECT_EQ(server_.range_requests, 3);
}

TEST_F(Download, GivesUpWithASentenceAndKeepsWhatItHas) {
  server_.cuts = 1000;
  expect_contains(error_text([&] { fetch(); }), remote_.url);
  EXPECT_FALSE(fs::exists(target()));
  EXPECT_GT(fs::file_size(partial()), 200'000u);
  server_.cuts = 0;
  fetch();
  EXPECT_EQ(on_disk(target()), content_);
}

TEST_F(Download, StartsAnewWhereTheServerCannotGoOn) {
  server_.knows_ranges = false;
  write_file(partial(), std::span(content_).first(1000));
  fetch();
  EXPECT_EQ(on_disk(target()), content_);
}

TEST_F(Download, StartsAnewWhereTheFirstPartWasOfAnotherFile) {
  write_file(partial(), Bytes(1000, 42));
  fetch();
  EXPECT_EQ(on_disk(target()), content_);
  ASSERT_EQ(quiet_.notes.size(), 1u);
  expect_contains(quiet_.notes[0], "anew");
}

TEST_F(Download, RefusesWrongContent) {
  remote_.md5 = md5_of(Bytes{1});
  expect_contains(error_text([&] { fetch(); }), "its MD5 is");
  EXPECT_FALSE(fs::exists(target()));
  EXPECT_FALSE(fs::exists(partial()));
}

TEST_F(Download, RefusesWrongSizes) {
  remote_.bytes -= 1;
  expect_contains(error_text([&] { fetch(); }), "larger than");
  remote_.bytes += 2;
  expect_contains(error_text([&] { fetch(); }), "ended after");
  EXPECT_FALSE(fs::exists(target()));
}

TEST_F(Download, SaysWhyAnAddressCannotBeReached) {
  remote_.url = server_.url("missing.bin");
  expect_contains(error_text([&] { fetch(); }), "404");
  remote_.url = "https://nowhere.invalid/a.bin";
  expect_contains(error_text([&] { fetch(); }), "nowhere.invalid");
}

/// A data set of small files.
class Get : public ::testing::Test {
 protected:
  void SetUp() override {
    const CifarLayout layout = test::tiny_cifar10();
    test::write_cifar(layout, scratch_.path() / "made");
    official_ = official_files("cifar10");
    official_.checksums.clear();
    std::vector<std::pair<std::string, Bytes>> members;
    for (const std::string& file : official_.files) {
      const Bytes content = read_file(scratch_.path() / "made" / file, 1 << 24);
      official_.checksums.push_back(md5_of(content));
      members.emplace_back("cifar-10-batches-bin/" + file, content);
    }
    archive_ = test::tar_gz(members);
    const std::string name = official_.remote.front().name;
    server_.files[name] = archive_;
    official_.remote = {{name, server_.url(name), archive_.size(), md5_of(archive_)}};
    official_.npm_package = "";
  }

  GetResult get(const GetOptions& options = {}) { return get_official(official_, options, quiet_); }

  void expect_whole(const fs::path& folder) {
    EXPECT_NO_THROW(verify(official_, folder));
    EXPECT_FALSE(fs::exists(folder.parent_path() / "cifar10.part"));
  }

  ScratchFolder scratch_;
  test::OwnRoots roots_{scratch_.path()};
  test::LocalServer server_;
  OfficialFiles official_;
  Bytes archive_;
  Quiet quiet_;
};

TEST_F(Get, DownloadsUnpacksAndVerifies) {
#if !SAPE2_HAVE_DOWNLOAD
  GTEST_SKIP() << "this build cannot download";
#endif
  const GetResult result = get();
  EXPECT_EQ(result.folder, scratch_.path() / "data/cifar10");
  expect_contains(result.origin, "downloaded");
  expect_whole(result.folder);
  EXPECT_EQ(get().origin, "already there");
  EXPECT_EQ(server_.bytes_sent, archive_.size());
}

TEST_F(Get, PrefersWhatTheMachineHas) {
  test::write_cifar(test::tiny_cifar10(), scratch_.path() / "cache/sape2/cifar-10-batches-bin");
  EXPECT_EQ(get().folder, scratch_.path() / "cache/sape2/cifar-10-batches-bin");
  const GetResult copied = get({.root = scratch_.path() / "mine"});
  EXPECT_EQ(copied.folder, scratch_.path() / "mine/cifar10");
  expect_contains(copied.origin, "copied");
  expect_whole(copied.folder);
  EXPECT_EQ(server_.bytes_sent, 0u);
}

TEST_F(Get, UnpacksAnArchiveThatLiesThere) {
  create_folder(scratch_.path() / "data");
  write_file(scratch_.path() / "data/cifar-10-binary.tar.gz", archive_);
  const GetResult result = get({.offline = true});
  expect_contains(result.origin, "unpacked from");
  expect_whole(result.folder);
}

TEST_F(Get, ReplacesADamagedFile) {
#if !SAPE2_HAVE_DOWNLOAD
  GTEST_SKIP() << "this build cannot download";
#endif
  const fs::path home = scratch_.path() / "data/cifar10";
  test::write_cifar(test::tiny_cifar10(), home);
  fs::resize_file(home / "data_batch_2.bin", 100);
  const GetResult result = get();
  expect_contains(quiet_.notes.at(0), "data_batch_2.bin");
  expect_contains(result.origin, "downloaded");
  expect_whole(home);
}

TEST_F(Get, OfflineSaysWhatToPutWhere) {
  const std::string text = error_text([&] { get({.offline = true}); });
  expect_contains(text, "cifar-10-binary.tar.gz");
  expect_contains(text, official_.home);
  expect_contains(text, (scratch_.path() / "data").native());
  EXPECT_FALSE(fs::exists(scratch_.path() / "data/cifar10"));
}

TEST_F(Get, AFailedSourceLeavesNothingUnderAFinalName) {
  Bytes damaged = archive_;
  damaged.resize(damaged.size() / 2);
  create_folder(scratch_.path() / "data");
  write_file(scratch_.path() / "data/cifar-10-binary.tar.gz", damaged);
  const std::string text = error_text([&] { get({.offline = true}); });
  expect_contains(text, "truncated or damaged");
  EXPECT_FALSE(find_dataset("cifar10"));
}

TEST(Verify, CountsLabelsInAnyOrder) {
  const ScratchFolder scratch;
  const CifarLayout layout = test::tiny_cifar100();
  test::write_cifar(layout, scratch.path());
  OfficialFiles official = official_files("cifar100");
  official.read = [&](const fs::path& folder, Split split) {
    return read_cifar(layout, folder, split);
  };
  const fs::path path = scratch.path() / "train.bin";
  Bytes records = read_file(path, 1 << 24);
  // Swapping two records changes nothing.
  std::swap_ranges(records.begin(), records.begin() + 3074, records.begin() + 17 * 3074);
  write_file(path, records);
  EXPECT_NO_THROW(verify(official, scratch.path()));
  records[1] = 55;
  write_file(path, records);
  expect_contains(error_text([&] { verify(official, scratch.path()); }), "expected 2");
}

TEST(Roots, AreSearchedInTheDocumentedOrder) {
  ::setenv("SAPE2_DATA", "/somewhere", 1);
  ::setenv("XDG_CACHE_HOME", "/cache", 1);
  EXPECT_EQ(search_roots("/root"),
            (std::vector<fs::path>{"/root", "/somewhere", "/cache/sape2",
                                   "/usr/local/share/datasets", "/usr/share/datasets"}));
  EXPECT_EQ(storage_root(), "/somewhere");
  ::unsetenv("SAPE2_DATA");
  EXPECT_EQ(storage_root(), "/cache/sape2");
  ::unsetenv("XDG_CACHE_HOME");
}

TEST(Roots, WithoutHomeAreNeverInAFolderOfEverybody) {
  const char* home = std::getenv("HOME");
  const std::string before = home == nullptr ? "" : home;
  ::unsetenv("HOME");
  const struct passwd* user = ::getpwuid(::geteuid());
  if (user != nullptr) {
    EXPECT_EQ(storage_root(), fs::path(user->pw_dir) / ".cache/sape2");
  }
  if (::geteuid() == 0) {
    // A user that the system does not know, in a process of its own.
    EXPECT_EXIT(
        {
          if (::setuid(54321) != 0 || ::getpwuid(54321) != nullptr) ::_exit(0);
          for (const fs::path& root : search_roots()) {
            if (!root.native().starts_with("/usr/")) ::_exit(1);
          }
          expect_contains(error_text([] { storage_root(); }), "SAPE2_DATA");
          ::_exit(::testing::Test::HasFailure() ? 2 : 0);
        },
        ::testing::ExitedWithCode(0), "");
  }
  if (home != nullptr) ::setenv("HOME", before.c_str(), 1);
}

}  // namespace
}  // namespace sape2::data
