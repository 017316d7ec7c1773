#include "sape2/train/segmentation.h"

#include "sape2/base/error.h"
#include "sape2/nn/vit.h"
#include "sape2/train/mask_figures.h"

#include "train/own_part.h"
#include "train/tasks/tasks.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

namespace sape2::train {
namespace {

constexpr int64_t kCpuImages = 32, kGpuImages = 256;

void check_masks(const nn::ViT& model, const data::Dataset& dataset) {
  if (dataset.target() != data::Target::masks) {
    throw Error(fmt::format("the data set {} was read without its masks", dataset.name));
  }
  check_fit(model.config(), dataset);
}

// A class for each pixel; those that are not counted add nothing.
class Segmentation : public Task {
 public:
  const nn::TaskDefinition& definition() const override {
    return nn::task_definition("segmentation");
  }

  data::Target target() const override { return data::Target::masks; }

  const std::vector<FigureDefinition>& figures() const override {
    static const std::vector<FigureDefinition> all{{"mean_iou", "mean IoU"},
                                                   {"boundary_f1", "boundary F1", true},
                                                   {"pixel_accuracy", "pixel accuracy"}};
    return all;
  }

  void check(const Recipe& recipe) const override {
    for (const char* key : {"auto_augment", "rand_augment_operations", "mixup_alpha",
                            "cutmix_alpha", "erase_probability"}) {
      refuse_value(recipe, key, *this);
    }
  }

  at::Tensor counted(const at::Tensor& targets) const override { return counted_pixels(targets); }

  Loss loss(const Recipe& recipe) const override {
    return [smoothing = recipe.label_smoothing](
               const at::Tensor& outputs, const at::Tensor& targets, const WholeBatch& batch) {
      const at::Tensor pixels = batch.counted.clamp_min(1).to(at::kFloat);
      return pixel_cross_entropy(outputs, targets, smoothing) / pixels;
    };
  }

  Measured measure(nn::ViT& model, const data::Dataset& dataset,
                   const EvaluateOptions& options) const override {
    check_masks(model, dataset);
    const at::NoGradGuard no_grad;
    const bool was_training = model.is_training();
    model.eval();
    const at::Device device = model.parameters().front().device();
    const int64_t usual = device.is_cpu() ? kCpuImages : kGpuImages;
    const int64_t batch = options.batch_size > 0 ? options.batch_size : usual;
    MaskCounts counts(dataset.classes(), device);
    const auto zero = at::device(device);
    at::Tensor loss = at::zeros({}, zero.dtype(at::kDouble));
    at::Tensor pixels = at::zeros({}, zero.dtype(at::kLong));
    at::Tensor broken = at::zeros({}, zero.dtype(at::kLong));
    const data::BatchPart part = own_part(options.group);
    const int64_t end = part.end(dataset.size());
    for (int64_t begin = part.begin(dataset.size()); begin < end; begin += batch) {
      const int64_t count = std::min(batch, end - begin);
      const at::Tensor logits =
          model.forward(normalised_images(model, dataset.images.narrow(0, begin, count)));
      const at::Tensor masks = dataset.masks.narrow(0, begin, count);
      const at::Tensor here = masks.to(device);
      broken += at::isfinite(logits).flatten(1).all(1).logical_not().sum();
      loss += pixel_cross_entropy(logits, here).to(at::kDouble);
      pixels += counted_pixels(here);
      counts.add(logits.argmax(1), masks);
    }
    model.train(was_training);
    if (options.group != nullptr) {
      for (const at::Tensor* sum : {&loss, &pixels, &broken}) options.group->sum(*sum);
      counts.add_up(*options.group);
    }
    if (const auto images = broken.item<int64_t>(); images > 0) {
      throw NotFinite(
          fmt::format("the model's output is not a finite number for {} of the {} images of {}, so "
                      "it has no mean IoU; its weights or the normalisation are damaged",
                      images, dataset.size(), dataset.name));
    }
    return {.images = dataset.size(),
            .loss = loss.item<double>() / std::max(1.0, pixels.item<double>()),
            .figures = counts.figures(),
            .confusion = counts.confusion()};
  }
};

}  // namespace

at::Tensor pixel_cross_entropy(const at::Tensor& logits, const at::Tensor& masks,
                               double smoothing) {
  const at::Tensor classes = masks.to(at::kLong).unsqueeze(1);  // (B, 1, H, W)
  const at::Tensor counted = classes.ne(static_cast<int64_t>(data::kNotCounted));
  const at::Tensor logs = at::log_softmax(logits, 1, at::kFloat);
  at::Tensor own = logs.gather(1, classes.masked_fill(counted.logical_not(), 0));
  if (smoothing > 0) own = own * (1 - smoothing) + logs.mean(1, true) * smoothing;
  return at::where(counted, -own, at::zeros({}, own.options())).sum();
}

at::Tensor counted_pixels(const at::Tensor& masks) {
  return masks.ne(static_cast<int64_t>(data::kNotCounted)).sum();
}

const Task& segmentation_task() {
  static const Segmentation task;
  return task;
}

}  // namespace sape2::train
