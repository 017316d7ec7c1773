#include "data/get/tar.h"

#include "data/tiny_files.h"
#include "io/error_text.h"
#include "io/scratch_folder.h"

#include <map>

namespace sape2::data {
namespace {

using io::test::error_text;
using io::test::expect_contains;
using io::test::ScratchFolder;

TEST(Tar, GivesTheWantedFilesWithoutTheirFolders) {
  const ScratchFolder scratch;
  const auto path = scratch.path() / "a.tar.gz";
  write_file(path, test::tar_gz({{"top/one.bin", Bytes(700, 1)},
                                 {"top/two.bin", Bytes(512, 2)},
                                 {"top/empty", {}},
                                 {"../../three.bin", Bytes(3, 3)}}));
  std::map<std::string, Bytes> found;
  read_tar_gz(
      path, [](const std::string& name) { return name != "two.bin"; },
      [&](const std::string& name, const Bytes& content) { found[name] = content; });
  EXPECT_EQ(found, (std::map<std::string, Bytes>{
                       {"one.bin", Bytes(700, 1)}, {"empty", {}}, {"three.bin", Bytes(3, 3)}}));
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
}

}  // namespace
}  // namespace sape2::data
