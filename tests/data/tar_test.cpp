#include "data/get/tar.h"

#include "data/tiny_files.h"
#include "support/error_text.h"
#include "support/scratch_folder.h"

#include <map>

namespace sape2::data {
namespace fs = std::filesystem;
namespace {

using namespace sape2::testing;

TEST(Tar, GivesTheWantedFilesByTheirPaths) {
  const ScratchFolder scratch;
  const auto path = scratch.path() / "a.tar.gz";
  write_file(path, test::tar_gz({{"top/one.bin", Bytes(700, 1)},
                                 {"top/two.bin", Bytes(512, 2)},
                                 {"top/empty", {}},
                                 {"../../three.bin", Bytes(3, 3)}}));
  std::map<std::string, Bytes> found;
  read_tar_gz(
      path, [](const std::string& name) { return name != "top/two.bin"; },
      [&](const std::string& name, const Bytes& content) { found[name] = content; });
  EXPECT_EQ(found, (std::map<std::string, Bytes>{{"top/one.bin", Bytes(700, 1)},
                                                 {"top/empty", {}},
                                                 {"../../three.bin", Bytes(3, 3)}}));
  EXPECT_EQ(file_name("../../three.bin"), "three.bin");
  EXPECT_EQ(file_name("three.bin"), "three.bin");
}

TEST(Tar, RefusesDamage) {
  const ScratchFolder scratch;
  const auto path = scratch.path() / "a.tar.gz";
  const auto read = [&] {
    read_tar_gz(
        path, [](const std::string&) { return true; }, [](const std::string&, const Bytes&) {});
  };
  Bytes whole = test::tar_gz({{"one.bin", Bytes(70'000, 1)}});
  write_file(path, std::span(whole).first(whole.size() / 2));
  expect_contains(error_text(read), "truncated or damaged");
  write_file(path, test::gzipped(Bytes(2048, 'x')));
  expect_contains(error_text(read), "no tar archive");
  write_file(path, Bytes{});
  expect_contains(error_text(read), "truncated or damaged");
  Bytes changed = test::tar_gz({{"one.bin", Bytes(70'000, 1)}});
  changed[changed.size() - 6] ^= 1;  // the checksum of gzip
  write_file(path, changed);
  expect_contains(error_text(read), "truncated or damaged");
  fs::remove(path);
  expect_contains(error_text(read), "there is no file");
}

TEST(Tar, PassesLinksOver) {
  const ScratchFolder scratch;
  const auto path = scratch.path() / "a.tar.gz";
  Bytes tar;
  for (const char type : {'1', '2', '5'}) {
    const Bytes header = test::tar_header("wanted", 0, type);
    tar.insert(tar.end(), header.begin(), header.end());
  }
  tar.resize(tar.size() + 1024);
  write_file(path, test::gzipped(tar));
  read_tar_gz(
      path, [](const std::string&) { return true; },
      [](const std::string& name, const Bytes&) { FAIL() << name; });
}

// A gigabyte of zeros packs into a megabyte; nobody is to wait until it has gone by.
TEST(Tar, RefusesTooLargeAFileThatNobodyWants) {
  const ScratchFolder scratch;
  const auto path = scratch.path() / "a.tar.gz";
  write_file(path, test::gzipped(test::tar_header("large", std::uint64_t{8} << 29, '0')));
  const auto read = [&] {
    read_tar_gz(
        path, [](const std::string&) { return false; }, [](const std::string&, const Bytes&) {});
  };
  expect_contains(error_text(read), "too large");
}

}  // namespace
}  // namespace sape2::data
