#include "support/sape2_case.h"

#include <ATen/ATen.h>

namespace sape2::testing {

Sape2Case::Sape2Case(const GoldenCase& golden, at::ScalarType type)
    : grid{golden.integer("H"), golden.integer("W"), golden.integer("P")},
      form(golden.settings.at("form")) {
  const auto leaf = [&](const std::string& name) {
    return leaves[name] = golden.tensors.at(name).to(type).clone().requires_grad_();
  };
  const auto number = [&](const std::string& name) {
    if (golden.has(name)) return leaf(name);
    return at::scalar_tensor(golden.number(name), at::TensorOptions().dtype(type));
  };
  q = leaf("q"), k = leaf("k"), v = leaf("v");
  vector_options.mode = golden.settings.at("mode");
  vector_options.span = golden.settings.at("span");
  if (vector_options.mode == "qk") {
    ex = at::stack({leaf("exq"), leaf("exk")});
    ey = at::stack({leaf("eyq"), leaf("eyk")});
  } else {
    ex = leaf("ex"), ey = leaf("ey");
  }
  vector_options.gate_scale = number("gate_scale");
  vector_options.gate_offset = number("gate_offset");
  bias_options.gain = number("gain");
  bias_options.scale = golden.number("scale");
  bias_options.bias_inside = golden.settings.at("inside") == "True";
}

at::Tensor Sape2Case::attention() const {
  return ops::sape2_attention(q, k, v, ex, ey, grid, vector_options, form, bias_options);
}

at::Tensor Sape2Case::bias() const {
  return ops::sape2_bias(q, k, ex, ey, grid, vector_options, form);
}

std::pair<at::Tensor, at::Tensor> Sape2Case::vectors() const {
  return ops::sape2_vectors(q, k, ex, ey, grid, vector_options);
}

}  // namespace sape2::testing
