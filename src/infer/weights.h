#pragma once

#include "sape2/io/safetensors.h"
#include "sape2/kernels/linear.h"

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace sape2::infer {

/// The tensors of a model file, taken one by one by the parts of a model. Each must be there with
/// the right shape; what nobody has taken is an error too.
class Weights {
 public:
  /// `round`: linear layers get weights of bfloat16, whatever the file has.
  Weights(const io::SafetensorsFile& file, bool round) : file_(file), round_(round) {}

  /// A tensor's numbers, widened where the file has bfloat16.
  std::vector<float> floats(const std::string& name, const std::vector<std::int64_t>& shape);

  /// The weights of a linear layer, (outputs, …); the axes behind the first are its inputs.
  kernels::PackedWeights packed(const std::string& name, const std::vector<std::int64_t>& shape);

  void refuse_others() const;

 private:
  const io::TensorView& take(const std::string& name, const std::vector<std::int64_t>& shape);

  const io::SafetensorsFile& file_;
  bool round_;
  std::set<std::string> taken_;
};

}  // namespace sape2::infer
