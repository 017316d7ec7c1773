#include "sape2/data/dataset.h"
#include "sape2/data/random.h"
#include "sape2/nn/vit.h"
#include "sape2/study/uncertainty.h"
#include "sape2/train/evaluate.h"
#include "sape2/train/run.h"

#include "study/probes/probe.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

namespace sape2::study {
namespace {

// The gates of every layer, the first layer first.
using LayerGates = std::vector<ops::Gates>;

// Gates of all layers that are kept at once, in numbers; larger grids take fewer images a batch.
constexpr std::int64_t kMostNumbers = std::int64_t{1} << 28;

// Logits with the model's own gates, which are kept in `gates`.
at::Tensor run_with_own(nn::ViT& model, const at::Tensor& images, LayerGates& gates) {
  gates.clear();
  return model.forward_with_gates(images, [&](const ops::Gates& own) {
    gates.push_back(own);
    return own;
  });
}

at::Tensor run_with(nn::ViT& model, const at::Tensor& images, const LayerGates& gates) {
  std::size_t layer = 0;
  return model.forward_with_gates(images, [&](const ops::Gates&) { return gates[layer++]; });
}

LayerGates of_images(const LayerGates& gates, const at::Tensor& which) {
  LayerGates chosen;
  for (const ops::Gates& layer : gates) {
    chosen.push_back({layer.x.index_select(0, which), layer.y.index_select(0, which)});
  }
  return chosen;
}

// Another image of the batch for each, by a fixed draw: never the image itself, each once.
at::Tensor partners(std::int64_t images, const at::Device& device) {
  const auto order = data::shuffled(images, data::Draws(0, 0, 0, data::Purpose::partner));
  std::vector<std::int64_t> partner(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    partner[static_cast<std::size_t>(order[i])] = order[(i + 1) % order.size()];
  }
  return at::tensor(partner, at::kLong).to(device);
}

std::int64_t batch_size(const nn::ViTConfig& vit, const data::Dataset& dataset) {
  const std::int64_t rows = dataset.height() / vit.patch_size.height;
  const std::int64_t cols = dataset.width() / vit.patch_size.width;
  const std::int64_t numbers = vit.depth * vit.heads * rows * cols * (rows + cols);
  return std::clamp<std::int64_t>(kMostNumbers / std::max<std::int64_t>(1, numbers), 2,
                                  kProbeBatch);
}

// Calls `look(begin, count)` for all images in batches of two or more.
template <typename Look>
void in_batches(std::int64_t images, std::int64_t batch, const Look& look) {
  for (std::int64_t begin = 0; begin < images;) {
    std::int64_t count = std::min(batch, images - begin);
    if (images - begin - count == 1) ++count;  // one alone has no other image
    look(begin, count);
    begin += count;
  }
}

LayerGates mean_gates(nn::ViT& model, const data::Dataset& dataset, std::int64_t batch) {
  LayerGates sums, gates;
  in_batches(dataset.size(), batch, [&](std::int64_t begin, std::int64_t count) {
    run_with_own(model, train::normalised_images(model, dataset.images.narrow(0, begin, count)),
                 gates);
    const auto sum = [](const at::Tensor& values) { return values.sum(0, true, at::kDouble); };
    for (std::size_t i = 0; i < gates.size(); ++i) {
      if (i == sums.size()) {
        sums.push_back({sum(gates[i].x), sum(gates[i].y)});
      } else {
        sums[i].x += sum(gates[i].x);
        sums[i].y += sum(gates[i].y);
      }
    }
  });
  const auto images = static_cast<double>(dataset.size());
  for (std::size_t i = 0; i < sums.size(); ++i) {
    sums[i].x = (sums[i].x / images).to(gates[i].x.scalar_type());
    sums[i].y = (sums[i].y / images).to(gates[i].y.scalar_type());
  }
  return sums;
}

// What a model answers with one kind of gates, beside what it answers with its own.
struct Answers {
  std::int64_t images = 0, right = 0, same = 0;  // same: the answer that own gates give
  std::int64_t only_here = 0, only_own = 0;      // right with these gates alone, with own alone
  double loss = 0;

  void add(const at::Tensor& logits, const at::Tensor& own_logits, const at::Tensor& labels) {
    const at::Tensor answer = logits.argmax(1), own_answer = own_logits.argmax(1);
    const at::Tensor hit = answer == labels, own_hit = own_answer == labels;
    const auto count = [](const at::Tensor& flags) { return flags.sum().item<std::int64_t>(); };
    images += labels.size(0);
    right += count(hit);
    same += count(answer == own_answer);
    only_here += count(hit.logical_and(own_hit.logical_not()));
    only_own += count(own_hit.logical_and(hit.logical_not()));
    loss += at::cross_entropy_loss(logits.to(at::kDouble), labels, {}, at::Reduction::Sum)
                .item<double>();
  }

  double top1() const { return static_cast<double>(right) / static_cast<double>(images); }
  Difference from_own() const { return paired_share_difference(only_here, only_own, images); }

  ProbeRow row(const std::string& label, bool is_own) const {
    const auto all = static_cast<double>(images);
    const double none = std::nan("");
    const Difference difference = from_own();
    return {
        label,
        {100 * top1(), loss / all, is_own ? none : 100 * difference.mean,
         is_own ? none : 100 * difference.interval->low,
         is_own ? none : 100 * difference.interval->high, 100 * static_cast<double>(same) / all}};
  }
};

std::string told(const char* whose, const Answers& answers) {
  const Difference difference = answers.from_own();
  return fmt::format("With {} top-1 is {:.2f} % ({:+.2f} points, {:+.2f} to {:+.2f}): {}.", whose,
                     100 * answers.top1(), 100 * difference.mean, 100 * difference.interval->low,
                     100 * difference.interval->high,
                     difference.may_be_zero() ? "not distinguishable"
                     : difference.mean < 0    ? "worse"
                                              : "better");
}

bool is_worse(const Answers& answers) {
  return !answers.from_own().may_be_zero() && answers.from_own().mean < 0;
}

// Gates of a wrong image may mislead a model that would do as well with gates that know no image.
std::string conclusion(const Answers& other, const Answers& mean) {
  if (is_worse(other) && is_worse(mean)) {
    return "So the model uses what its gates say about the image.";
  }
  if (is_worse(other)) {
    return "So gates of a wrong image mislead the model, but gates that know nothing of the image "
           "serve it as well as its own.";
  }
  return "So it does not show that the model uses what its gates say about the image.";
}

std::string reading_of(const Answers& own, const Answers& other, const Answers& mean) {
  return fmt::format("With the image's own gates top-1 is {:.2f} %. {} {} {}", 100 * own.top1(),
                     told("another image's", other), told("mean gates", mean),
                     conclusion(other, mean));
}

}  // namespace

ProbeResult probe_gates(nn::ViT& model, const ProbeOptions& options) {
  ProbeResult result{
      .name = "gates",
      .question = fmt::format(
          "Whether the model uses what its gates say about the image: accuracy on {} with the "
          "gates of each image itself, with those that another image of the same batch has in its "
          "own pass, and with the mean gates of training images, in all layers. If accuracy stays, "
          "the gates are not used.",
          options.data.name),
      .reading = ""};
  if (model.config().task != nn::kClassification) {
    result.reading = "Left out: it counts answers of classifiers, and the model's task is " +
                     model.config().task + ".";
    return result;
  }
  const at::NoGradGuard no_grad;
  const nn::ViTConfig& vit = model.config().vit;
  LayerGates gates;
  const at::Tensor blank =
      at::zeros({1, vit.channels, vit.image_size.height, vit.image_size.width}, at::kByte);
  run_with_own(model, train::normalised_images(model, blank), gates);
  if (gates.empty()) {
    result.reading = "Left out: the model's encoding has no gates of SaPE².";
    return result;
  }
  train::DataConfig data = options.data;
  data.train_images = data.test_images = options.images;
  const data::Dataset test = train::load_split(data, data::Split::test);
  train::check_fit(model.config(), test);
  if (test.size() < 2) {
    result.reading = "Left out: it takes two images to exchange gates.";
    return result;
  }
  const data::Dataset training = train::load_split(data, data::Split::train);
  const std::int64_t batch = batch_size(vit, test);
  const LayerGates mean = mean_gates(model, training, batch);

  Answers with_own, with_other, with_mean;
  in_batches(test.size(), batch, [&](std::int64_t begin, std::int64_t count) {
    const at::Tensor images = train::normalised_images(model, test.images.narrow(0, begin, count));
    const at::Tensor labels = test.labels.narrow(0, begin, count).to(images.device());
    const at::Tensor own = run_with_own(model, images, gates);
    const at::Tensor other =
        run_with(model, images, of_images(gates, partners(count, images.device())));
    with_own.add(own, own, labels);
    with_other.add(other, own, labels);
    with_mean.add(run_with(model, images, mean), own, labels);
  });
  result.tables.push_back(
      {fmt::format("accuracy with exchanged gates, {} test images", test.size()),
       {"gates", "top-1 %", "loss", "less own", "from", "to", "same answer %"},
       {with_own.row("the image's own", true), with_other.row("another image's", false),
        with_mean.row(fmt::format("mean of {} training images", training.size()), false)}});
  result.reading = reading_of(with_own, with_other, with_mean);
  return result;
}

}  // namespace sape2::study
