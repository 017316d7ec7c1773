// A user's program that links the operators; start_up_test runs it.
//   linked_program settings            what was settled, one line each, and the BLAS kernels in use
//   linked_program restart             the same after restart_if_late()
//   linked_program bfloat16            a product in bfloat16
#include "sape2/base/openblas.h"
#include "sape2/base/start_up.h"
#include "sape2/ops/ops.h"

#include <ATen/ATen.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

void print_settings() {
  for (const auto& setting : sape2::base::applied_settings()) {
    std::printf("%s=%s by %s, %s\n", setting.variable.c_str(), setting.value.c_str(),
                setting.set_by == sape2::base::SetBy::user ? "user" : "sape2",
                setting.in_time ? "in time" : "late");
  }
  std::printf("core=%s\n", sape2::base::find_loaded_blas().core.c_str());
}

int multiply_in_bfloat16() {
  const auto a = at::randn({3, 128, 128}), b = at::randn({3, 128, 128});
  const auto product = at::matmul(a.to(at::kBFloat16), b.to(at::kBFloat16)).to(at::kFloat);
  const double error = (product - at::matmul(a, b)).abs().max().item<double>();
  std::printf("error %g\n", error);
  return error < 1 ? 0 : 1;
}

}  // namespace

int main(int count, char** arguments) {
  const std::string task = count > 1 ? arguments[1] : "";
  if (task == "restart") sape2::base::restart_if_late(arguments);
  if (task == "bfloat16") return multiply_in_bfloat16();
  sape2::ops::ReferenceGuard guard;  // whatever keeps the library linked
  print_settings();
  return 0;
}
