#pragma once

#include <ATen/core/stack.h>

#include <string>
#include <vector>

/// Operators called by name, as Python does it: with the arguments of their schemas.
namespace sape2::testing {

/// A call whose arguments all fit, on tensors of random numbers: a grid of 3 × 2 behind one prefix
/// token, 2 images, 3 heads, head size 8. A test spoils some of them.
class OperatorCall {
 public:
  explicit OperatorCall(const std::string& name);  ///< without "sape2::"

  const std::string& name() const { return name_; }
  /// Names and values in the order of the schema.
  const std::vector<std::string>& names() const { return names_; }
  torch::jit::Stack& values() { return values_; }
  c10::IValue& operator[](const std::string& argument);

  /// All tensors that come out; throws as the operator does.
  std::vector<at::Tensor> run() const;
  /// What comes out of one that gives text.
  std::string text() const;

 private:
  torch::jit::Stack results() const;

  std::string name_;
  std::vector<std::string> names_;
  torch::jit::Stack values_;
};

/// Every operator of the library: the public ones, and the internal ones they are made of.
const std::vector<std::string>& public_operators();
const std::vector<std::string>& internal_operators();
/// Those without a formula beside them: kernel_for, and what the Python package adds (src/python,
/// which has to be linked).
const std::vector<std::string>& package_operators();

}  // namespace sape2::testing
