#include "sape2/data/dataset.h"
#include "sape2/nn/vit.h"
#include "sape2/train/run.h"
#include "sape2/train/task.h"

#include "study/probes/probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace sape2::study {
namespace {

constexpr double kFactors[] = {0.5, 0.75, 1, 1.25, 1.5, 2};

// Sizes near those factors that patches divide, each once.
std::vector<std::int64_t> sizes_for(const nn::ViTConfig& vit) {
  std::vector<std::int64_t> sizes;
  for (const double factor : kFactors) {
    const auto patches = static_cast<std::int64_t>(
        std::llround(factor * static_cast<double>(vit.image_size.height / vit.patch_size.height)));
    const std::int64_t size = std::max<std::int64_t>(1, patches) * vit.patch_size.height;
    if (sizes.empty() || sizes.back() != size) sizes.push_back(size);
  }
  return sizes;
}

}  // namespace

ProbeResult probe_sizes(nn::ViT& model, const ProbeOptions& options) {
  const nn::ViTConfig& vit = model.config().vit;
  ProbeResult result{
      .name = "sizes",
      .question = fmt::format("Accuracy on {} at other sizes than the {}×{} the "
                              "model was trained at, the same images resized.",
                              options.data.name, vit.image_size.height, vit.image_size.width),
      .reading = ""};
  if (vit.image_size.height != vit.image_size.width ||
      vit.patch_size.height != vit.patch_size.width) {
    result.reading = "Left out: the model's images or patches are not square.";
    return result;
  }
  const train::Task& task = train::task_of(model);
  ProbeTable table{"accuracy by size", figure_columns(task, "pixels")};
  double trained = 0, lowest = 1;
  std::int64_t lowest_size = 0;
  for (const std::int64_t size : sizes_for(vit)) {
    train::DataConfig data = options.data;
    data.image_size = size;
    data.test_images = options.images;
    const train::Measured measured =
        task.measure(model, train::load_split(data, data::Split::test, task.target()));
    table.rows.push_back({fmt::format("{0}×{0}", size), figure_values(measured)});
    const double reached = train::main_figure(measured.figures);
    if (size == vit.image_size.height) trained = reached;
    if (reached < lowest) {
      lowest = reached;
      lowest_size = size;
    }
  }
  // What chance does to a share of so many images is known; an IoU is no such share.
  const std::string chance =
      task.target() == data::Target::masks
          ? ""
          : fmt::format(
                ", so differences under {:.1f} points mean little",
                200 * std::sqrt(trained * (1 - trained) / static_cast<double>(options.images)));
  result.reading =
      fmt::format("{:.1f} % at the size trained at; the lowest is {:.1f} % at {}×{} ({} images{}).",
                  100 * trained, 100 * lowest, lowest_size, lowest_size, options.images, chance);
  result.tables.push_back(std::move(table));
  return result;
}

}  // namespace sape2::study
