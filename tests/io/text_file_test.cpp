#include "io/text_file.h"

#include "support/error_text.h"
#include "support/scratch_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

namespace sape2::io {
namespace {

using namespace sape2::testing;

TEST(TextFile, IsReadWhole) {
  const ScratchFolder folder;
  std::ofstream(folder / "text") << "a\nb";
  EXPECT_EQ(read_text_file(folder / "text", 3), "a\nb");
  expect_contains(error_text([&] { read_text_file(folder / "text", 2); }),
                  "it has 3 bytes, expected 2 at most");
  std::ofstream(folder / "empty").flush();
  EXPECT_EQ(read_text_file(folder / "empty", 0), "");
}

TEST(TextFile, WhatIsNoFileIsRefusedAtOnce) {
  const ScratchFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  expect_contains(error_text([&] { read_text_file(folder / "pipe", 9); }), "not a regular file");
  expect_contains(error_text([&] { read_text_file("/dev/zero", 9); }), "not a regular file");
  expect_contains(error_text([&] { read_text_file(folder.path(), 9); }), "it is a folder");
  expect_contains(error_text([&] { read_text_file(folder / "none", 9); }), "no such file");
}

}  // namespace
}  // namespace sape2::io
