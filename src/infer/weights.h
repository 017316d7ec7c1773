#pragma once

#include "sape2/base/large_block.h"
#include "sape2/io/safetensors.h"
#include "sape2/kernels/linear.h"

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace sape2::infer {

/// One block for the packed weights of all linear layers, handed out front to back. Layers lie in
/// it as they are used, and a large model's block is taken in large pages.
class PackedMemory {
 public:
  explicit PackedMemory(std::size_t bytes) : block_(base::large_block(bytes)), left_(bytes) {}

  /// Aligned to 64; null where no more is left.
  void* take(std::size_t bytes);

 private:
  base::Block block_;
  std::size_t taken_ = 0, left_;
};

/// The tensors of a model file, taken one by one by the parts of a model. Each must be there with
/// the right shape; what nobody has taken is an error too.
class Weights {
 public:
  /// `round`: linear layers get weights of bfloat16, whatever the file has. They are packed into
  /// `memory`, which outlives them.
  Weights(const io::SafetensorsFile& file, bool round, PackedMemory& memory)
      : file_(file), round_(round), memory_(memory) {}

  /// A tensor's numbers, widened where the file has bfloat16.
  std::vector<float> floats(const std::string& name, const std::vector<std::int64_t>& shape);

  /// The weights of a linear layer, (outputs, …); the axes behind the first are its inputs.
  kernels::PackedWeights packed(const std::string& name, const std::vector<std::int64_t>& shape);

  void refuse_others() const;

 private:
  kernels::PackedWeights pack(const void* weights, kernels::DType dtype, std::int64_t outputs,
                              std::int64_t inputs);
  const io::TensorView& take(const std::string& name, const std::vector<std::int64_t>& shape);

  const io::SafetensorsFile& file_;
  bool round_;
  PackedMemory& memory_;
  std::set<std::string> taken_;
};

}  // namespace sape2::infer
