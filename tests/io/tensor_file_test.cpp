#include "sape2/io/tensor_file.h"

#include "sape2/io/checksum.h"

#include "io/raw_file.h"
#include "support/error_text.h"
#include "support/file_bytes.h"
#include "support/scratch_folder.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <string>

namespace sape2::io::test {
namespace {

using namespace sape2::testing;

namespace fs = std::filesystem;

void write_raw(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

TEST(TensorFile, EveryTypeSurvivesARoundTrip) {
  ScratchFolder folder;
  NamedTensors tensors;
  for (const auto type : {at::kBool, at::kByte, at::kChar, at::kShort, at::kHalf, at::kBFloat16,
                          at::kInt, at::kFloat, at::kDouble, at::kLong}) {
    tensors[at::toString(type)] = at::randint(0, 2, {3, 5}, at::kLong).to(type);
  }
  tensors["scalar"] = at::scalar_tensor(2.5, at::kDouble);
  tensors["empty"] = at::empty({0, 4}, at::kFloat);
  save_tensors(folder / "f", tensors, {{"k", "v"}});

  EXPECT_EQ(SafetensorsFile::open(folder / "f").metadata().at("k"), "v");
  const NamedTensors loaded = load_tensors(folder / "f");
  ASSERT_EQ(loaded.size(), tensors.size());
  for (const auto& [name, tensor] : tensors) {
    EXPECT_EQ(loaded.at(name).scalar_type(), tensor.scalar_type()) << name;
    EXPECT_TRUE(at::equal(loaded.at(name), tensor)) << name;
    EXPECT_TRUE(at::equal(load_tensor(folder / "f", name), tensor)) << name;
  }
}

TEST(TensorFile, StridesAndGradientsAreNotInTheWay) {
  ScratchFolder folder;
  const at::Tensor base = at::arange(12, at::kFloat).view({3, 4}).requires_grad_();
  save_tensors(folder / "f", {{"transposed", base.t()}, {"expanded", base[0].expand({2, 4})}});
  EXPECT_TRUE(at::equal(load_tensor(folder / "f", "transposed"), base.detach().t()));
  EXPECT_TRUE(at::equal(load_tensor(folder / "f", "expanded"), base.detach()[0].expand({2, 4})));
  EXPECT_FALSE(load_tensor(folder / "f", "transposed").requires_grad());
}

TEST(TensorFile, SharesTheMappingAndOutlivesTheFile) {
  ScratchFolder folder;
  const at::Tensor original = at::arange(1000, at::kDouble);
  save_tensors(folder / "f", {{"t", original}});
  at::Tensor tensor;
  {
    const auto file = SafetensorsFile::open(folder / "f");
    tensor = to_tensor(file, file.at("t"));
    EXPECT_EQ(tensor.data_ptr(), static_cast<const void*>(file.at("t").bytes.data()));
  }
  fs::remove(folder / "f");
  EXPECT_TRUE(at::equal(tensor, original));
}

TEST(TensorFile, ChangingATensorDoesNotChangeTheFile) {
  ScratchFolder folder;
  save_tensors(folder / "f", {{"t", at::zeros({4})}});
  const std::string before = file_bytes(folder / "f");
  load_tensor(folder / "f", "t").fill_(7);
  EXPECT_EQ(file_bytes(folder / "f"), before);
}

TEST(TensorFile, UnalignedDataIsCopied) {
  ScratchFolder folder;
  // The header is not padded and a byte precedes the floats: both are allowed by the format.
  const float values[2] = {1.5f, -2.0f};
  std::string data = "x";
  data.append(reinterpret_cast<const char*>(values), sizeof values);
  write_raw(folder / "f", raw_file(R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                   R"("f":{"dtype":"F32","shape":[1,2],"data_offsets":[1,9]}})",
                                   data));
  const at::Tensor tensor = load_tensor(folder / "f", "f");
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.data_ptr()) % alignof(float), 0u);
  EXPECT_EQ(tensor.sizes(), (at::IntArrayRef{1, 2}));
  EXPECT_EQ(tensor[0][0].item<float>(), 1.5f);
  EXPECT_EQ(tensor[0][1].item<float>(), -2.0f);
}

TEST(TensorFile, AnyByteButZeroIsTrue) {
  ScratchFolder folder;
  write_raw(folder / "f", raw_file(R"({"b":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}})",
                                   std::string("\0\1\xff", 3)));
  const at::Tensor tensor = load_tensor(folder / "f", "b");
  EXPECT_TRUE(at::equal(tensor.to(at::kInt), at::tensor({0, 1, 1}, at::kInt)));
}

TEST(TensorFile, EachImpossibleTensorGetsASentence) {
  ScratchFolder folder;
  const auto save_text = [&](const at::Tensor& tensor) {
    const std::string text = error_text([&] { save_tensors(folder / "f", {{"w", tensor}}); });
    EXPECT_EQ(folder.file_count(), 0u);
    return text;
  };
  expect_contains(save_text(at::Tensor()), "tensor \"w\" is undefined");
  expect_contains(save_text(at::zeros({2}, at::kComplexFloat)),
                  "tensor \"w\" has the type Complex");
  expect_contains(save_text(at::eye(3).to_sparse()), "tensor \"w\" is sparse");
  expect_contains(save_text(at::empty({2}, at::TensorOptions(at::kMeta))), "meta device");

  write_raw(folder / "u16",
            raw_file(R"({"u":{"dtype":"U16","shape":[1],"data_offsets":[0,2]}})", "ab"));
  expect_contains(error_text([&] { load_tensors(folder / "u16"); }),
                  "tensor \"u\" has the dtype U16, which LibTorch does not compute with");
  expect_contains(error_text([&] { load_tensor(folder / "u16", "v"); }), "has no tensor \"v\"");
}

TEST(TensorFile, EveryFlippedByteOfOurFilesIsFound) {
  ScratchFolder folder;
  save_tensors(folder / "f", {{"a", at::arange(6, at::kFloat)}, {"b", at::ones({2, 2})}},
               {{"about", "something"}});
  const std::string whole = file_bytes(folder / "f");
  const auto key = whole.find(kChecksumKey);
  ASSERT_NE(key, std::string::npos);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    // Without the key it is a file like those of other programs, which have no checksum.
    if (i >= key && i < key + kChecksumKey.size()) continue;
    std::string changed = whole;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    std::ofstream(folder / "changed", std::ios::binary) << changed;
    EXPECT_THROW(load_tensors(folder / "changed"), FormatError) << "byte " << i;
  }
}

TEST(TensorFile, AFileWithoutAChecksumLoads) {
  ScratchFolder folder;
  const std::string values(8, '\0');
  const TensorView tensor{"t", Dtype::f32, {2}, as_bytes(values)};
  write_safetensors(folder / "f", std::span(&tensor, 1), {{"format", "pt"}});
  EXPECT_TRUE(at::equal(load_tensor(folder / "f", "t"), at::zeros({2})));
}

// By hand: the checksum is a promise about files that exist.
TEST(Checksum, IsWhatItHasAlwaysBeen) {
  const std::string values("\x00\x00\x80\x3f", 4);
  const TensorView tensor{"w", Dtype::f32, {1, 1}, as_bytes(values)};
  const std::string text = std::string("k=v\nw 1,1\n") + values;
  std::uint32_t crc = ~0u;
  for (const char c : text) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78u : 0);
  }
  char expected[32];
  std::snprintf(expected, sizeof expected, "crc32c:%08x", static_cast<unsigned>(~crc));
  EXPECT_EQ(checksum_of({{"k", "v"}, {kChecksumKey, "anything"}}, std::span(&tensor, 1)), expected);
}

}  // namespace
}  // namespace sape2::io::test
