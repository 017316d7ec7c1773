#include "support/gradcheck.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <sstream>

namespace sape2::testing {

std::string gradient_mismatch(const Function& function, const std::vector<at::Tensor>& inputs,
                              double step, double tolerance) {
  std::vector<at::Tensor> leaves;
  for (const auto& input : inputs) leaves.push_back(input.detach().clone().requires_grad_());
  const auto out = function(leaves);
  const auto weights = at::randn(out.sizes(), out.options());
  const auto gradients =
      torch::autograd::grad({(out * weights).sum()}, leaves, {}, /*retain_graph=*/false,
                            /*create_graph=*/false, /*allow_unused=*/true);

  at::NoGradGuard off;
  const auto value = [&] { return (function(leaves) * weights).sum().item<double>(); };
  for (size_t which = 0; which < leaves.size(); ++which) {
    auto flat = leaves[which].view({-1});
    auto* data = flat.data_ptr<double>();
    for (int64_t entry = 0; entry < flat.numel(); ++entry) {
      const double before = data[entry];
      data[entry] = before + step;
      const double above = value();
      data[entry] = before - step;
      const double below = value();
      data[entry] = before;
      const double numeric = (above - below) / (2 * step);
      const double analytic =
          gradients[which].defined() ? gradients[which].reshape({-1})[entry].item<double>() : 0.0;
      if (!(std::abs(numeric - analytic) <= tolerance * (1 + std::abs(numeric)))) {
        std::ostringstream text;
        text << "input " << which << ", entry " << entry << ": analytic " << analytic
             << ", numeric " << numeric;
        return text.str();
      }
    }
  }
  return "";
}

}  // namespace sape2::testing
