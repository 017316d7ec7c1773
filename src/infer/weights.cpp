#include "infer/weights.h"

#include "io/model_tensors.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace sape2::infer {

void* PackedMemory::take(std::size_t bytes) {
  constexpr std::size_t kLine = 64;
  if (bytes > left_) return nullptr;
  void* place = block_.get() + taken_;
  const std::size_t rounded = (bytes + kLine - 1) / kLine * kLine;
  taken_ += rounded;
  left_ -= std::min(left_, rounded);
  return place;
}

std::vector<float> Weights::floats(const std::string& name,
                                   const std::vector<std::int64_t>& shape) {
  const io::TensorView& tensor = take(name, shape);
  std::vector<float> numbers(tensor.bytes.size() / io::dtype_size(tensor.dtype));
  if (tensor.dtype == io::Dtype::f32) {
    std::memcpy(numbers.data(), tensor.bytes.data(), tensor.bytes.size());
    return numbers;
  }
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    std::uint16_t upper = 0;
    std::memcpy(&upper, tensor.bytes.data() + 2 * i, sizeof upper);
    numbers[i] = std::bit_cast<float>(std::uint32_t{upper} << 16);
  }
  return numbers;
}

kernels::PackedWeights Weights::packed(const std::string& name,
                                       const std::vector<std::int64_t>& shape) {
  const io::TensorView& tensor = take(name, shape);
  std::int64_t inputs = 1;
  for (std::size_t axis = 1; axis < shape.size(); ++axis) inputs *= shape[axis];
  const bool wide = tensor.dtype == io::Dtype::f32;
  if (wide && round_) {
    const std::int64_t numbers = shape.front() * inputs;
    std::vector<float> row(static_cast<std::size_t>(numbers));
    std::memcpy(row.data(), tensor.bytes.data(), tensor.bytes.size());
    std::vector<std::uint16_t> rounded(static_cast<std::size_t>(numbers + numbers % 2));
    kernels::round_to_bfloat16(1, numbers, {row.data(), numbers},
                               {rounded.data(), numbers + numbers % 2});
    return pack(rounded.data(), kernels::DType::bfloat16, shape.front(), inputs);
  }
  return pack(tensor.bytes.data(), wide ? kernels::DType::float32 : kernels::DType::bfloat16,
              shape.front(), inputs);
}

kernels::PackedWeights Weights::pack(const void* weights, kernels::DType dtype,
                                     std::int64_t outputs, std::int64_t inputs) {
  const std::size_t bytes = kernels::PackedWeights::packed_bytes(dtype, outputs, inputs);
  return {weights, dtype, outputs, inputs, memory_.take(bytes)};
}

void Weights::refuse_others() const {
  io::refuse_other_tensors(file_, [&](const std::string& name) { return taken_.contains(name); });
}

const io::TensorView& Weights::take(const std::string& name,
                                    const std::vector<std::int64_t>& shape) {
  taken_.insert(name);
  return io::model_tensor(file_, name, shape);
}

}  // namespace sape2::infer
