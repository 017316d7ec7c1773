#include "sape2/io/tensor_file.h"

#include "io/error_text.h"
#include "io/raw_file.h"
#include "io/scratch_folder.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>

namespace sape2::io::test {
namespace {

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

  EXPECT_EQ(SafetensorsFile::open(folder / "f").metadata(), (Metadata{{"k", "v"}}));
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
  const std::string before = read_whole_file(folder / "f");
  load_tensor(folder / "f", "t").fill_(7);
  EXPECT_EQ(read_whole_file(folder / "f"), before);
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

}  // namespace
}  // namespace sape2::io::test
