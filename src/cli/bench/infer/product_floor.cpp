#include "cli/bench/infer/product_floor.h"

#include "sape2/kernels/runtime.h"

#include <thread>
#include <vector>

namespace sape2::cli {
namespace {

constexpr double kMeasureMilliseconds = 100;

double gflops_of_all(int threads) {
  std::vector<double> rates(static_cast<std::size_t>(threads));
  std::vector<std::thread> running;
  for (double& rate : rates) {
    running.emplace_back([&rate] { rate = kernels::multiply_add_gflops(kMeasureMilliseconds); });
  }
  for (std::thread& thread : running) thread.join();
  double sum = 0;
  for (const double rate : rates) sum += rate;
  return sum;
}

}  // namespace

double product_operations(const nn::ViTConfig& vit) {
  const auto patches = static_cast<double>(vit.rows() * vit.cols());
  const double tokens = patches + static_cast<double>(vit.prefix());
  const auto width = static_cast<double>(vit.width), hidden = static_cast<double>(vit.mlp_width());
  const auto pixels =
      static_cast<double>(vit.channels * vit.patch_size.height * vit.patch_size.width);
  const double layer = tokens * (4 * width * width + 2 * width * hidden + 2 * tokens * width);
  return 2 * (patches * pixels * width + static_cast<double>(vit.depth) * layer +
              width * static_cast<double>(vit.classes));
}

double product_milliseconds(const nn::ViTConfig& vit, int threads) {
  return product_operations(vit) / (gflops_of_all(threads) * 1e6);
}

}  // namespace sape2::cli
