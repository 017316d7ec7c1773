#include "sape2/data/shapes.h"
#include "sape2/nn/vit.h"
#include "sape2/train/evaluate.h"

#include "study/attention_view.h"
#include "study/probes/probe.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace sape2::study {
namespace {

// A patch belongs to the object or the background when it lies there to at least this share.
constexpr double kBelongs = 0.75;
constexpr int64_t kFewestPairs = 5;  // of each kind, for two places to count

// Which pairs of patches lie in one region and which across two, and which are far apart.
struct Pairs {
  at::Tensor inside, across;  // (B, patches, patches) bool
  at::Tensor far;             // (patches, patches) bool
};

at::Tensor shares_in_object(const at::Tensor& masks, const nn::ViTConfig& vit) {
  return at::avg_pool2d(masks.to(at::kFloat).unsqueeze(1),
                        {vit.patch_size.height, vit.patch_size.width})
      .flatten(1);  // (B, patches)
}

Pairs pairs_of(const at::Tensor& masks, const nn::ViTConfig& vit) {
  const at::Tensor share = shares_in_object(masks, vit);
  const at::Tensor object = share >= kBelongs, ground = share <= 1 - kBelongs;
  const auto both = [](const at::Tensor& a, const at::Tensor& b) {
    return a.unsqueeze(2).logical_and(b.unsqueeze(1));
  };
  const int64_t rows = vit.rows(), cols = vit.cols();
  const at::Tensor number = at::arange(rows * cols, at::kLong);
  const at::Tensor y = number.div(cols, "floor"), x = number.remainder(cols);
  const at::Tensor dy = y.unsqueeze(0) - y.unsqueeze(1), dx = x.unsqueeze(0) - x.unsqueeze(1);
  const at::Tensor other = at::ones({rows * cols, rows * cols}, at::kBool).fill_diagonal_(false);
  Pairs pairs;
  pairs.inside = both(object, object).logical_or(both(ground, ground)).logical_and(other);
  pairs.across = both(object, ground).logical_or(both(ground, object));
  pairs.far = at::maximum(dy.abs(), dx.abs()) * 2 >= std::max(rows, cols);
  return pairs;
}

// Sums over many images for every two places: where they lay in one region, and where in two.
class MatchedSums {
 public:
  explicit MatchedSums(int64_t patches)
      : sums_(at::zeros({2, patches, patches}, at::kDouble)), counts_(sums_.clone()) {}

  void add(const at::Tensor& values, const Pairs& pairs) {  // (B, patches, patches)
    const at::Tensor inside = pairs.inside.to(at::kDouble), across = pairs.across.to(at::kDouble);
    sums_ += at::stack({(values * inside).sum(0), (values * across).sum(0)});
    counts_ += at::stack({inside.sum(0), across.sum(0)});
    squares_ += values.to(at::kDouble).square().sum().item<double>();
    seen_ += static_cast<double>(values.numel());
  }

  double deviation() const { return std::sqrt(squares_ / seen_); }

  // The means inside and across, over places that were seen as both, each weighted alike for both.
  std::pair<double, double> means(const at::Tensor& chosen) const {
    const at::Tensor fewest = std::get<0>(counts_.min(0));
    const at::Tensor usable = fewest.ge(kFewestPairs).logical_and(chosen);
    const at::Tensor weight = fewest * usable.to(at::kDouble);
    const at::Tensor mean = sums_ / counts_.clamp_min(1);
    const at::Tensor result = (mean * weight).sum({1, 2}) / weight.sum();
    return {result[0].item<double>(), result[1].item<double>()};
  }

 private:
  at::Tensor sums_, counts_;  // (2, patches, patches): inside, across
  double squares_ = 0, seen_ = 0;
};

struct LayerSums {
  explicit LayerSums(int64_t patches) : bias(patches), attention(patches), content(patches) {}
  MatchedSums bias, attention, content;
};

double ratio(const std::pair<double, double>& means) {
  return means.first / means.second;
}

ProbeRow row_of(const std::string& label, const LayerSums& sums, const Pairs& pairs) {
  const at::Tensor all = at::ones_like(pairs.far);
  const double deviation = sums.bias.deviation();
  const auto difference = [&](const at::Tensor& chosen) {
    const auto [inside, across] = sums.bias.means(chosen);
    return deviation < kLeastBias ? std::nan("") : (inside - across) / deviation;
  };
  return {label,
          {difference(all), difference(pairs.far), ratio(sums.attention.means(all)),
           ratio(sums.attention.means(pairs.far)), ratio(sums.content.means(all)),
           ratio(sums.content.means(pairs.far))}};
}

ProbeRow mean_row(const std::vector<ProbeRow>& rows) {
  ProbeRow mean{"mean", std::vector<double>(rows.front().values.size())};
  for (const ProbeRow& row : rows) {
    for (std::size_t i = 0; i < row.values.size(); ++i) {
      mean.values[i] += row.values[i] / static_cast<double>(rows.size());
    }
  }
  return mean;
}

}  // namespace

ProbeResult probe_region(nn::ViT& model, const ProbeOptions& options) {
  ProbeResult result{
      .name = "region",
      .question =
          "Whether patches of one region (object or background of `shapes`) are treated as "
          "positions alike: bias and attention between two patches of one region against two of "
          "different ones. Pairs are matched by their places, so that distance alone explains "
          "nothing; `far` are pairs half the image apart or more, where \"similar yet distant\" "
          "would show.",
      .reading = ""};
  if (!takes_shapes(model)) {
    result.reading = "Left out: the model does not take square images of three channels.";
    return result;
  }
  const nn::ViTConfig& vit = model.config().vit;
  data::ShapesOptions shapes{.split = data::Split::test, .count = options.images};
  shapes.image_size = vit.image_size.height;
  const data::Shapes scenes = data::make_shapes(shapes);

  std::vector<LayerSums> sums;
  Pairs pairs;
  for (int64_t begin = 0; begin < options.images; begin += kProbeBatch) {
    const int64_t count = std::min(kProbeBatch, options.images - begin);
    const at::Tensor bytes = scenes.dataset.images.narrow(0, begin, count);
    const ModelView view = view_model(model, train::normalised_images(model, bytes));
    pairs = pairs_of(scenes.masks.narrow(0, begin, count), vit);
    // One by one: copies of tensors would share their numbers.
    while (sums.size() < view.layers.size()) sums.emplace_back(vit.rows() * vit.cols());
    for (std::size_t i = 0; i < view.layers.size(); ++i) {
      const auto patches = static_cast<double>(vit.rows() * vit.cols());
      sums[i].bias.add(view.layers[i].bias.mean(1).cpu(), pairs);
      sums[i].attention.add(view.layers[i].attention.mean(1).cpu() * patches, pairs);
      sums[i].content.add(view.layers[i].content.mean(1).cpu() * patches, pairs);
    }
  }
  ProbeTable table{
      "inside a region against across; bias in its own deviations, attention as a ratio",
      {"layer", "bias", "bias, far", "attention", "attention, far", "attention by content alone",
       "… far"}};
  for (std::size_t i = 0; i < sums.size(); ++i) {
    table.rows.push_back(row_of(std::to_string(i + 1), sums[i], pairs));
  }
  table.rows.push_back(mean_row(table.rows));
  const std::vector<double>& mean = table.rows.back().values;
  result.reading =
      std::isnan(mean[0])
          ? "This encoding adds no bias to the attention."
          : fmt::format(
                "The bias inside a region is {:+.2f} deviations from that across ({:+.2f} "
                "for far pairs).",
                mean[0], mean[1]);
  result.reading += fmt::format(
      " Patches attend {:.2f} times as much within their region as across; by content alone it "
      "would be {:.2f} times.{}",
      mean[2], mean[4],
      knows_shapes(model) ? "" : " The model was trained on other images than these.");
  result.tables.push_back(std::move(table));
  return result;
}

}  // namespace sape2::study
