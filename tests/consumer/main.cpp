// What somebody with a ViT of their own does: SaPE² attention in place of plain attention.
#include <ATen/ATen.h>
#include <sape2/ops/ops.h>
#include <sape2/version.h>

#include <iostream>

int main() {
  const sape2::ops::Grid grid{8, 8, 1};
  const auto q = at::randn({2, 3, grid.tokens(), 16}).requires_grad_();
  const auto table = at::randn({15, 16});
  const auto out = sape2::ops::sape2_attention(q, q, q, table, table, grid, {.span = "between"},
                                               "direct", {.bias_inside = false});
  out.sum().backward();
  const bool good = out.isfinite().all().item<bool>() && q.grad().isfinite().all().item<bool>();
  std::cout << "sape2 " << SAPE2_VERSION << ": " << (good ? "works" : "does not work") << "\n";
  return good ? 0 : 1;
}
