#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

namespace sape2::testing {

using Function = std::function<at::Tensor(const std::vector<at::Tensor>&)>;

/// Compares the gradients of `function` at float64 `inputs` with central differences, entry by
/// entry, for a fixed random weighting of the outputs. Returns "" or where they first differ.
std::string gradient_mismatch(const Function& function, const std::vector<at::Tensor>& inputs,
                              double step = 1e-6, double tolerance = 1e-5);

}  // namespace sape2::testing
