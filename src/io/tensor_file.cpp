#include "sape2/io/tensor_file.h"

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"
#include "sape2/io/checksum.h"

#include <ATen/ATen.h>

#include <array>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace sape2::io {
namespace {

constexpr std::array<std::pair<Dtype, at::ScalarType>, 10> kScalarTypes = {{
    {Dtype::boolean, at::kBool},
    {Dtype::u8, at::kByte},
    {Dtype::i8, at::kChar},
    {Dtype::i16, at::kShort},
    {Dtype::f16, at::kHalf},
    {Dtype::bf16, at::kBFloat16},
    {Dtype::i32, at::kInt},
    {Dtype::f32, at::kFloat},
    {Dtype::f64, at::kDouble},
    {Dtype::i64, at::kLong},
}};

std::optional<at::ScalarType> scalar_type(Dtype dtype) {
  for (const auto& [ours, theirs] : kScalarTypes) {
    if (ours == dtype) return theirs;
  }
  return std::nullopt;
}

std::optional<Dtype> file_dtype(at::ScalarType type) {
  for (const auto& [ours, theirs] : kScalarTypes) {
    if (theirs == type) return ours;
  }
  return std::nullopt;
}

bool is_aligned(const TensorView& view) {
  return reinterpret_cast<std::uintptr_t>(view.bytes.data()) % dtype_size(view.dtype) == 0;
}

// What is written: on the CPU, contiguous, without lazy negation.
at::Tensor plain_copy(const std::string& name, const at::Tensor& tensor) {
  const std::string context = "tensor " + in_quotes(name);
  if (!tensor.defined()) throw Error(context + " is undefined, expected a tensor with values");
  if (tensor.layout() != at::kStrided || tensor.is_quantized()) {
    throw Error(context + " is sparse or quantised, expected a dense tensor");
  }
  if (tensor.is_meta()) throw Error(context + " is on the meta device and has no values");
  if (!file_dtype(tensor.scalar_type())) {
    throw Error(context + " has the type " + at::toString(tensor.scalar_type()) +
                ", which safetensors files cannot hold");
  }
  return tensor.detach().to(at::kCPU).resolve_neg().contiguous();
}

}  // namespace

at::Tensor to_tensor(const SafetensorsFile& file, const TensorView& view) {
  const auto type = scalar_type(view.dtype);
  if (!type) {
    throw Error(in_quotes(file.path()) + ": tensor " + in_quotes(view.name) + " has the dtype " +
                std::string(dtype_name(view.dtype)) + ", which LibTorch does not compute with");
  }
  if (view.bytes.empty()) return at::empty(view.shape, *type);
  // The memory is the file object's own, so writing to it is allowed.
  void* data = const_cast<std::byte*>(view.bytes.data());
  if (view.dtype == Dtype::boolean) {
    // Bytes other than 0 and 1 are not booleans to the compiler.
    return at::from_blob(data, view.shape, at::kByte).ne(0);
  }
  if (!is_aligned(view)) {
    const auto size = static_cast<std::int64_t>(view.bytes.size());
    const at::Tensor copy = at::from_blob(data, {size}, at::kByte).clone();
    return copy.view(*type).view(view.shape);
  }
  return at::from_blob(
      data, view.shape, [memory = file.memory()](void*) {}, *type);
}

at::Tensor load_tensor(const std::filesystem::path& path, const std::string& name) {
  const auto file = SafetensorsFile::open(path);
  verify_checksum(file);
  return to_tensor(file, file.at(name));
}

NamedTensors load_tensors(const std::filesystem::path& path) {
  const auto file = SafetensorsFile::open(path);
  verify_checksum(file);
  NamedTensors tensors;
  for (const TensorView& view : file.tensors()) tensors.emplace(view.name, to_tensor(file, view));
  return tensors;
}

void save_tensors(const std::filesystem::path& path, const NamedTensors& tensors,
                  const Metadata& metadata) {
  std::vector<at::Tensor> plain;
  std::vector<TensorView> views;
  for (const auto& [name, tensor] : tensors) {
    plain.push_back(plain_copy(name, tensor));
    const at::Tensor& values = plain.back();
    views.push_back({.name = name,
                     .dtype = *file_dtype(values.scalar_type()),
                     .shape = values.sizes().vec(),
                     .bytes = {static_cast<const std::byte*>(values.data_ptr()),
                               static_cast<std::size_t>(values.nbytes())}});
  }
  Metadata with_checksum = metadata;
  with_checksum[kChecksumKey] = checksum_of(metadata, views);
  write_safetensors(path, views, with_checksum);
}

}  // namespace sape2::io
