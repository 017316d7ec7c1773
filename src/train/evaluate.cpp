#include "sape2/train/evaluate.h"

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"
#include "sape2/data/augment.h"
#include "sape2/data/dataset.h"
#include "sape2/dist/group.h"
#include "sape2/nn/vit.h"

#include "train/own_part.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <tuple>

namespace sape2::train {
namespace {

constexpr int64_t kTop = 5;
constexpr int64_t kCpuBatch = 256, kGpuBatch = 2048;

at::Device device_of(const nn::ViT& model) {
  return model.parameters().front().device();
}

// Sums over batches, on the device of the logits: a GPU is asked once, at the end.
struct Counts {
  at::Tensor loss, hits, broken, confusion;  // hits: top-1, top-5; broken: images without a result

  void begin(int64_t classes, at::Device device) {
    const auto whole = at::device(device).dtype(at::kLong);
    loss = at::zeros({}, whole.dtype(at::kDouble));
    hits = at::zeros({2}, whole);
    broken = at::zeros({}, whole);
    confusion = at::zeros({classes * classes}, whole);
  }

  // Over all processes, some of which may have had no image.
  void add_up(dist::Group& group, int64_t classes) {
    if (!loss.defined()) begin(classes, group.device());
    for (const at::Tensor* sum : {&loss, &hits, &broken, &confusion}) group.sum(*sum);
  }

  void add(const at::Tensor& logits, const at::Tensor& true_classes, int64_t classes) {
    if (!loss.defined()) begin(classes, logits.device());
    const at::Tensor labels = true_classes.to(logits.device());
    broken += at::isfinite(logits).all(1).logical_not().sum();
    const at::Tensor log_probabilities = at::log_softmax(logits, 1, at::kFloat);
    loss -= log_probabilities.gather(1, labels.unsqueeze(1)).sum(at::kDouble);
    const at::Tensor top = std::get<1>(logits.topk(std::min(kTop, classes), 1));  // (B, ≤5)
    const at::Tensor hit = top == labels.unsqueeze(1);
    hits += at::stack({hit.select(1, 0).sum(), hit.sum()});
    confusion += at::bincount(labels * classes + top.select(1, 0), {}, classes * classes);
  }
};

}  // namespace

void check_fit(const nn::ModelConfig& config, const data::Dataset& dataset) {
  if (dataset.size() == 0) {
    throw Error(fmt::format("the data set {} has no images to evaluate on", dataset.name));
  }
  if (dataset.classes() != config.vit.classes) {
    throw Error(fmt::format("the data set {} has {} classes but the model has {}", dataset.name,
                            dataset.classes(), config.vit.classes));
  }
  if (dataset.channels() != config.vit.channels) {
    throw Error(fmt::format("images of {} have {} channels but the model takes {}", dataset.name,
                            dataset.channels(), config.vit.channels));
  }
  if (!config.class_names.empty() && config.class_names != dataset.class_names) {
    const auto differs = std::ranges::mismatch(config.class_names, dataset.class_names);
    throw Error(
        fmt::format("the model was not trained on the classes of {}: where it has {}, the "
                    "data set has {}",
                    dataset.name, in_quotes(*differs.in1), in_quotes(*differs.in2)));
  }
}

at::Tensor normalised_images(const nn::ViT& model, const at::Tensor& bytes) {
  const nn::ModelConfig& config = model.config();
  return data::normalise(bytes.to(device_of(model)), {config.mean, config.deviation});
}

Evaluation evaluate(nn::ViT& model, const data::Dataset& dataset, const EvaluateOptions& options) {
  const at::NoGradGuard no_grad;
  const bool was_training = model.is_training();
  model.eval();
  const auto classify = [&](const at::Tensor& bytes) {
    return model.forward(normalised_images(model, bytes));
  };
  EvaluateOptions chosen = options;
  if (chosen.batch_size == 0) chosen.batch_size = device_of(model).is_cpu() ? kCpuBatch : kGpuBatch;
  const Evaluation result = evaluate(model.config(), classify, dataset, chosen);
  model.train(was_training);
  return result;
}

Evaluation evaluate(const nn::ModelConfig& config, const Classifier& classify,
                    const data::Dataset& dataset, const EvaluateOptions& options) {
  const int64_t classes = config.vit.classes, images = dataset.size();
  check_fit(config, dataset);
  const at::NoGradGuard no_grad;
  const int64_t batch = options.batch_size > 0 ? options.batch_size : kCpuBatch;
  Counts counts;
  const data::BatchPart part = own_part(options.group);
  const int64_t end = part.end(images);
  for (int64_t begin = part.begin(images); begin < end; begin += batch) {
    const int64_t count = std::min(batch, end - begin);
    counts.add(classify(dataset.images.narrow(0, begin, count)),
               dataset.labels.narrow(0, begin, count), classes);
  }
  if (options.group != nullptr) counts.add_up(*options.group, classes);
  if (const auto count = counts.broken.item<int64_t>(); count > 0) {
    throw NotFinite(
        fmt::format("the model's output is not a finite number for {} of the {} images of {}, so "
                    "it has no accuracy; its weights or the normalisation are damaged",
                    count, images, dataset.name));
  }

  const auto all = static_cast<double>(images);
  return {.images = images,
          .top1 = static_cast<double>(counts.hits[0].item<int64_t>()) / all,
          .top5 = static_cast<double>(counts.hits[1].item<int64_t>()) / all,
          .loss = counts.loss.item<double>() / all,
          .confusion = counts.confusion.view({classes, classes}).cpu()};
}

}  // namespace sape2::train
