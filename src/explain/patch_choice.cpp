#include "sape2/explain/patch_choice.h"

#include "sape2/explain/inspection.h"

#include <ATen/ATen.h>

namespace sape2::explain {
namespace {

constexpr int kRounds = 20;
constexpr double kTiny = 1e-12;

at::Tensor unit(const at::Tensor& vectors) {
  return vectors / vectors.norm(2, -1, true).clamp_min(kTiny);
}

at::Tensor border_of(const ops::Grid& grid) {
  at::Tensor border = at::ones({grid.rows, grid.cols}, at::kBool);
  if (grid.rows > 2 && grid.cols > 2) {
    border.narrow(0, 1, grid.rows - 2).narrow(1, 1, grid.cols - 2).fill_(false);
  }
  return border.flatten();
}

at::Tensor middle_of(const ops::Grid& grid) {
  at::Tensor middle = at::zeros({grid.rows, grid.cols}, at::kBool);
  middle.narrow(0, grid.rows / 3, (grid.rows + 2) / 3)
      .narrow(1, grid.cols / 3, (grid.cols + 2) / 3)
      .fill_(true);
  return middle.flatten();
}

at::Tensor mean_of(const at::Tensor& features, const at::Tensor& members) {
  return unit(features.index({members}).mean(0));
}

double share(const at::Tensor& of, const at::Tensor& within) {
  return of.logical_and(within).sum().item<double>() / of.sum().item<double>();
}

Patch best(const at::Tensor& score, const at::Tensor& members, const ops::Grid& grid) {
  const auto number = score.masked_fill(members.logical_not(), -1e30).argmax().item<std::int64_t>();
  return {number / grid.cols, number % grid.cols};
}

}  // namespace

ChosenPatches choose_patches(const Inspection& inspection) {
  return choose_patches(inspection.features(), inspection.grid());
}

ChosenPatches choose_patches(const at::Tensor& patches, const ops::Grid& grid) {
  const at::NoGradGuard no_grad;
  const at::Tensor all = patches.to(at::kFloat);
  const at::Tensor features = unit(all - all.mean(0, true));
  const at::Tensor border = border_of(grid);
  at::Tensor first = mean_of(features, middle_of(grid)), second = mean_of(features, border);
  at::Tensor in_first;
  for (int round = 0; round < kRounds; ++round) {
    const at::Tensor now = features.matmul(first) > features.matmul(second);
    const auto count = now.sum().item<std::int64_t>();
    if (count == 0 || count == grid.patches()) {  // nothing to tell apart
      return {{grid.rows / 2, grid.cols / 2}, {0, 0}};
    }
    if (in_first.defined() && in_first.equal(now)) break;
    in_first = now;
    first = mean_of(features, in_first);
    second = mean_of(features, in_first.logical_not());
  }
  const at::Tensor in_second = in_first.logical_not();
  const at::Tensor score = features.matmul(first) - features.matmul(second);
  const Patch of_first = best(score, in_first, grid), of_second = best(-score, in_second, grid);
  return share(in_first, border) > share(in_second, border) ? ChosenPatches{of_second, of_first}
                                                            : ChosenPatches{of_first, of_second};
}

}  // namespace sape2::explain
