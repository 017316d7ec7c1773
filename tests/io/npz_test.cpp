#include "sape2/io/npz.h"

#include "io/raw_file.h"
#include "support/error_text.h"
#include "support/file_bytes.h"
#include "support/scratch_folder.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <zlib.h>

namespace sape2::io {
namespace {

using namespace sape2::testing;

std::uint32_t number(const std::string& file, std::size_t at, int size) {
  std::uint32_t value = 0;
  for (int i = size - 1; i >= 0; --i) {
    value = value << 8 | static_cast<unsigned char>(file.at(at + static_cast<std::size_t>(i)));
  }
  return value;
}

struct Stored {
  std::string name, content;
};

// Reads a ZIP file by its central directory, as other programs do.
std::vector<Stored> unzip(const std::string& file) {
  std::vector<Stored> entries;
  const std::size_t end = file.size() - 22;
  EXPECT_EQ(number(file, end, 4), 0x06054b50U);
  std::size_t at = number(file, end + 16, 4);
  for (std::uint32_t i = 0; i < number(file, end + 10, 2); ++i) {
    EXPECT_EQ(number(file, at, 4), 0x02014b50U);
    const std::uint32_t sum = number(file, at + 16, 4), size = number(file, at + 24, 4);
    EXPECT_EQ(number(file, at + 10, 2), 0U) << "stored";
    EXPECT_EQ(number(file, at + 12, 4), 0x00210000U) << "1 January 1980";
    const std::uint32_t name_length = number(file, at + 28, 2), local = number(file, at + 42, 4);
    const std::string name = file.substr(at + 46, name_length);
    EXPECT_EQ(number(file, local, 4), 0x04034b50U);
    EXPECT_EQ(file.substr(local + 30, name_length), name);
    const std::uint32_t extra = number(file, local + 28, 2);
    const std::string content = file.substr(local + 30 + name_length + extra, size);
    EXPECT_EQ(crc32(0, reinterpret_cast<const Bytef*>(content.data()), size), sum) << name;
    entries.push_back({name, content});
    at += 46 + name_length + number(file, at + 30, 2);
  }
  EXPECT_EQ(at, end);
  return entries;
}

TEST(Npz, HoldsArraysAsNumpyExpectsThem) {
  const ScratchFolder folder;
  const at::Tensor square = at::arange(6, at::kFloat).view({2, 3}).t();
  write_npz(folder / "a.npz", {{"square", square}, {"one", at::full({}, 7, at::kLong)}});
  const auto entries = unzip(file_bytes(folder / "a.npz"));
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_EQ(entries[0].name, "one.npy");
  EXPECT_EQ(entries[1].name, "square.npy");
  const std::string& content = entries[1].content;
  EXPECT_EQ(content.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
  const std::uint32_t header = number(content, 8, 2);
  EXPECT_EQ((10 + header) % 64, 0U);
  EXPECT_NE(content.find("'descr': '<f4', 'fortran_order': False, 'shape': (3, 2, ), }"),
            std::string::npos);
  EXPECT_EQ(content[9 + header], '\n');
  const std::string data = content.substr(10 + header);
  ASSERT_EQ(data.size(), 24U);
  std::vector<float> values(6);
  std::memcpy(values.data(), data.data(), 24);
  EXPECT_EQ(values, (std::vector<float>{0, 3, 1, 4, 2, 5}));
  EXPECT_NE(entries[0].content.find("'shape': (), }"), std::string::npos);
}

// Whatever the locale: the program sets none.
TEST(Npz, NamesAreUtf8) {
  const ScratchFolder folder;
  write_npz(folder / "a.npz", {{"größe", at::zeros({2})}});
  const std::string file = file_bytes(folder / "a.npz");
  EXPECT_EQ(unzip(file)[0].name, "größe.npy");
  EXPECT_NE(number(file, 6, 2) & 0x0800U, 0U) << "the flag that says so";
}

TEST(Npz, RefusesTypesThatNumpyLacksAndLeavesNothing) {
  const ScratchFolder folder;
  const auto write = [&] { write_npz(folder / "a.npz", {{"b", at::zeros({2}, at::kBFloat16)}}); };
  expect_contains(error_text(write), "\"b\"");
  EXPECT_EQ(folder.file_count(), 0U);
}

TEST(Npz, NamesAFolderThatIsNotThere) {
  const ScratchFolder folder;
  const auto write = [&] { write_npz(folder / "no/a.npz", {}); };
  expect_contains(error_text(write), "a.npz");
}

}  // namespace
}  // namespace sape2::io
