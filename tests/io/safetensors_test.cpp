#include "sape2/io/safetensors.h"

#include "io/raw_file.h"
#include "support/error_text.h"
#include "support/file_bytes.h"
#include "support/scratch_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <numeric>
#include <string>
#include <vector>

namespace sape2::io::test {
namespace {

using namespace sape2::testing;

namespace fs = std::filesystem;

std::vector<std::string> names_of(std::span<const TensorView> tensors) {
  std::vector<std::string> names;
  for (const TensorView& tensor : tensors) names.push_back(tensor.name);
  return names;
}

TEST(Dtype, NamesAndSizesAreTheFormats) {
  const std::map<std::string, std::size_t> expected = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1},
      {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},
      {"U32", 4},  {"F32", 4}, {"F64", 8}, {"I64", 8},     {"U64", 8}};
  std::map<std::string, std::size_t> found;
  for (const Dtype dtype : all_dtypes()) {
    found.emplace(dtype_name(dtype), dtype_size(dtype));
    EXPECT_EQ(dtype_from_name(dtype_name(dtype)), dtype);
  }
  EXPECT_EQ(found, expected);
  EXPECT_EQ(dtype_from_name("f32"), std::nullopt);
}

TEST(Safetensors, EveryDtypeSurvivesARoundTrip) {
  ScratchFolder folder;
  std::string data(6 * 8, '\0');
  std::iota(data.begin(), data.end(), char{1});
  std::vector<TensorView> tensors;
  for (const Dtype dtype : all_dtypes()) {
    tensors.push_back({.name = "t." + std::string(dtype_name(dtype)),
                       .dtype = dtype,
                       .shape = {2, 3},
                       .bytes = as_bytes(data).first(6 * dtype_size(dtype))});
  }
  const Metadata metadata = {{"format", "pt"}, {"quote\"\n\\", "größe 模型 \t"}, {"", ""}};
  write_safetensors(folder / "all.safetensors", tensors, metadata);

  const auto file = SafetensorsFile::open(folder / "all.safetensors");
  EXPECT_EQ(file.metadata(), metadata);
  ASSERT_EQ(file.tensors().size(), tensors.size());
  for (const TensorView& tensor : tensors) {
    const TensorView& read = file.at(tensor.name);
    EXPECT_EQ(read.dtype, tensor.dtype);
    EXPECT_EQ(read.shape, tensor.shape);
    EXPECT_EQ(as_text(read.bytes), as_text(tensor.bytes));
  }
}

TEST(Safetensors, EmptyTensorsScalarsAndNoTensors) {
  ScratchFolder folder;
  const std::string four = "abcd";
  const std::vector<TensorView> tensors = {
      {.name = "empty", .dtype = Dtype::f64, .shape = {3, 0, 2}, .bytes = {}},
      {.name = "scalar", .dtype = Dtype::f32, .shape = {}, .bytes = as_bytes(four)},
      {.name = "also empty", .dtype = Dtype::f64, .shape = {0}, .bytes = {}},
      {.name = "", .dtype = Dtype::u8, .shape = {1, 1}, .bytes = as_bytes(four).first(1)}};
  write_safetensors(folder / "odd.safetensors", tensors);
  const auto file = SafetensorsFile::open(folder / "odd.safetensors");
  EXPECT_TRUE(file.metadata().empty());
  EXPECT_EQ(file.at("empty").shape, (std::vector<std::int64_t>{3, 0, 2}));
  EXPECT_EQ(as_text(file.at("scalar").bytes), "abcd");
  EXPECT_TRUE(file.at("scalar").shape.empty());
  EXPECT_EQ(as_text(file.at("").bytes), "a");

  write_safetensors(folder / "none.safetensors", {});
  EXPECT_EQ(file_bytes(folder / "none.safetensors"), raw_file("{}      "));
  EXPECT_TRUE(SafetensorsFile::open(folder / "none.safetensors").tensors().empty());
}

// The bytes that the format's own implementation writes for the same content.
TEST(Safetensors, LayoutIsThatOfTheReferenceImplementation) {
  ScratchFolder folder;
  const std::string data = "0123456789abcdef";
  const std::vector<TensorView> tensors = {
      {.name = "a", .dtype = Dtype::u8, .shape = {1}, .bytes = as_bytes(data).first(1)},
      {.name = "z", .dtype = Dtype::f32, .shape = {1}, .bytes = as_bytes(data).first(4)},
      {.name = "b", .dtype = Dtype::f32, .shape = {2}, .bytes = as_bytes(data).first(8)},
      {.name = "m", .dtype = Dtype::bf16, .shape = {1, 1}, .bytes = as_bytes(data).first(2)}};
  write_safetensors(folder / "f", tensors, {{"k", "v"}});
  const std::string header = R"({"__metadata__":{"k":"v"},)"
                             R"("b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                             R"("z":{"dtype":"F32","shape":[1],"data_offsets":[8,12]},)"
                             R"("m":{"dtype":"BF16","shape":[1,1],"data_offsets":[12,14]},)"
                             R"("a":{"dtype":"U8","shape":[1],"data_offsets":[14,15]}})";
  const std::string padding((8 - header.size() % 8) % 8, ' ');
  EXPECT_EQ(file_bytes(folder / "f"), raw_file(header + padding,
                                               "01234567"
                                               "0123"
                                               "01"
                                               "0"));
}

TEST(Safetensors, TheOrderGivenDoesNotMatter) {
  ScratchFolder folder;
  const std::string data(64, 'x');
  std::vector<TensorView> tensors;
  for (const char* name : {"c", "a", "b"}) {
    for (const Dtype dtype : {Dtype::f32, Dtype::i64, Dtype::boolean}) {
      tensors.push_back({.name = name + std::string(dtype_name(dtype)),
                         .dtype = dtype,
                         .shape = {2},
                         .bytes = as_bytes(data).first(2 * dtype_size(dtype))});
    }
  }
  write_safetensors(folder / "1", tensors);
  std::ranges::reverse(tensors);
  write_safetensors(folder / "2", tensors);
  EXPECT_EQ(file_bytes(folder / "1"), file_bytes(folder / "2"));
  EXPECT_EQ(names_of(SafetensorsFile::open(folder / "1").tensors()),
            (std::vector<std::string>{"aI64", "bI64", "cI64", "aF32", "bF32", "cF32", "aBOOL",
                                      "bBOOL", "cBOOL"}));
}

TEST(Safetensors, TensorsAreListedInFileOrder) {
  const std::string file = raw_file(R"({"last":{"dtype":"U8","shape":[2],"data_offsets":[1,3]},)"
                                    R"("first":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
                                    "xyz");
  const auto content = parse_safetensors(as_bytes(file), "f");
  EXPECT_EQ(names_of(content.tensors), (std::vector<std::string>{"first", "last"}));
  EXPECT_EQ(as_text(content.tensors[1].bytes), "yz");
}

TEST(Safetensors, ReadsTheGoldenFiles) {
  int files = 0;
  for (const auto& entry : fs::directory_iterator(SAPE2_GOLDEN_DIR)) {
    if (entry.path().extension() != ".safetensors") continue;
    SCOPED_TRACE(entry.path().filename());
    ++files;
    const auto file = SafetensorsFile::open(entry.path());
    EXPECT_TRUE(file.metadata().contains("encoding"));
    const TensorView& q = file.at("q");
    EXPECT_EQ(q.dtype, Dtype::f64);
    EXPECT_EQ(q.shape.size(), 4u);
    for (const TensorView& tensor : file.tensors()) {
      std::vector<double> values(tensor.bytes.size() / sizeof(double));
      std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
      for (const double value : values) {
        ASSERT_TRUE(std::isfinite(value) && std::abs(value) < 1e6) << tensor.name;
      }
    }
  }
  EXPECT_GT(files, 10);
}

TEST(Safetensors, BytesOutliveTheFileObjectWithItsMemory) {
  std::shared_ptr<const void> memory;
  std::span<const std::byte> bytes;
  std::string expected;
  {
    const auto file = SafetensorsFile::open(fs::path(SAPE2_GOLDEN_DIR) / "cope.safetensors");
    memory = file.memory();
    bytes = file.at("q").bytes;
    expected = as_text(bytes);
  }
  EXPECT_EQ(as_text(bytes), expected);
}

TEST(Safetensors, WhatHappensToAnOpenedFileDoesNotMatter) {
  ScratchFolder folder;
  const std::string values(1 << 16, 'v');
  const TensorView tensor{"t", Dtype::u8, {1 << 16}, as_bytes(values)};
  write_safetensors(folder / "f", std::span(&tensor, 1));
  const auto file = SafetensorsFile::open(folder / "f");
  fs::resize_file(folder / "f", 0);  // reading a mapping of it would now end the process
  EXPECT_EQ(as_text(file.at("t").bytes), values);
}

TEST(Safetensors, AHeaderAloneTakesNoMemoryForTensors) {
  ScratchFolder folder;
  constexpr std::uint64_t kHuge = std::uint64_t{1} << 42;
  std::ofstream(folder / "f", std::ios::binary) << raw_file(
      R"({"t":{"dtype":"U8","shape":[4398046511104],"data_offsets":[0,4398046511104]}})");
  std::error_code error;
  fs::resize_file(folder / "f", fs::file_size(folder / "f") + kHuge, error);
  if (error) GTEST_SKIP() << "this file system has no files of 4 TiB";
  const auto header = SafetensorsFile::open_header(folder / "f");
  EXPECT_EQ(header.at("t").shape, std::vector<std::int64_t>{1L << 42});
  EXPECT_TRUE(header.at("t").bytes.empty());
}

TEST(Safetensors, AMissingTensorIsNamed) {
  ScratchFolder folder;
  write_safetensors(folder / "f.safetensors", {});
  const auto file = SafetensorsFile::open(folder / "f.safetensors");
  EXPECT_EQ(file.find("w"), nullptr);
  const std::string text = error_text([&] { file.at("w"); });
  expect_contains(text, "f.safetensors\" has no tensor \"w\"");
}

TEST(SafetensorsOpen, EachUnreadableFileGetsASentence) {
  ScratchFolder folder;
  const auto open_text = [](const fs::path& path) {
    return error_text([&] { SafetensorsFile::open(path); });
  };
  expect_contains(open_text(folder / "absent"), "absent\": there is no such file");
  expect_contains(open_text(folder.path()), "it is a folder, expected a file");
  std::ofstream(folder / "empty").close();
  expect_contains(open_text(folder / "empty"), "it is empty");
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  expect_contains(open_text(folder / "pipe"), "it is not a regular file");
  expect_contains(open_text(folder / "empty" / "below"), "Not a directory");
  std::ofstream(folder / "secret") << "x";
  fs::permissions(folder / "secret", fs::perms::none);
  if (::geteuid() != 0) expect_contains(open_text(folder / "secret"), "Permission denied");
}

TEST(SafetensorsWrite, WhatCannotBeWrittenIsRefused) {
  ScratchFolder folder;
  const std::string data = "abcdefgh";
  const auto write_text = [&](std::vector<TensorView> tensors, Metadata metadata = {}) {
    const std::string text =
        error_text([&] { write_safetensors(folder / "f", tensors, metadata); });
    EXPECT_EQ(folder.file_count(), 0u) << "a refused write left a file";
    return text;
  };
  const TensorView good{.name = "w", .dtype = Dtype::f32, .shape = {2}, .bytes = as_bytes(data)};
  TensorView bad = good;
  expect_contains(write_text({good, good}), "tensor \"w\" is given twice");
  bad.shape = {3};
  expect_contains(write_text({bad}), "tensor \"w\" has 8 bytes, expected 12");
  bad.shape = {-2};
  expect_contains(write_text({bad}), "has -2 in its shape");
  bad.shape = std::vector<std::int64_t>(65, 1);
  expect_contains(write_text({bad}), "65 dimensions, expected at most 64");
  bad.shape = {std::int64_t{1} << 40, std::int64_t{1} << 40};
  expect_contains(write_text({bad}), "overflows");
  bad = good;
  bad.name = "__metadata__";
  expect_contains(write_text({bad}), "keep for their metadata");
  bad.name = "\xff";
  expect_contains(write_text({bad}), "not valid UTF-8");
  expect_contains(write_text({good}, {{"k", "\xc3"}}), "not valid UTF-8");
}

}  // namespace
}  // namespace sape2::io::test
