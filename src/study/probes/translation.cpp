#include "sape2/data/dataset.h"
#include "sape2/data/shapes.h"
#include "sape2/nn/vit.h"
#include "sape2/train/evaluate.h"
#include "sape2/train/run.h"
#include "sape2/train/task.h"

#include "study/attention_view.h"
#include "study/probes/probe.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace sape2::study {
namespace {

constexpr int64_t kLargestShift = 8;
constexpr int64_t kShapesSide = 32;

struct Shift {
  int64_t right = 0;
  int64_t down = 0;
};

// Images of the data set moved by whole pixels.
class ShiftedImages {
 public:
  ShiftedImages(const nn::ViT& model, const ProbeOptions& options)
      : seamless_(options.data.name == "shapes" && options.data.image_size == 0 &&
                  model.config().vit.image_size == nn::Size2d{kShapesSide, kShapesSide}),
        count_(options.images),
        task_(train::task_of(model)) {
    if (seamless_) return;
    train::DataConfig data = options.data;
    data.test_images = options.images;
    still_ = train::load_split(data, data::Split::test, task_.target());
  }

  bool seamless() const { return seamless_; }

  data::Dataset moved(Shift shift) const {
    if (seamless_) {
      data::ShapesOptions options{.split = data::Split::test, .count = count_};
      options.shift_x = shift.right;
      options.shift_y = shift.down;
      return shapes_for(task_, options);
    }
    // What comes in at the border is the image mirrored.
    data::Dataset dataset = still_;
    const int64_t height = still_.height(), width = still_.width();
    const auto mirrored = [&](const at::Tensor& planes) {
      return at::reflection_pad2d(planes.to(at::kFloat), {shift.right, 0, shift.down, 0})
          .narrow(2, 0, height)
          .narrow(3, 0, width)
          .to(at::kByte)
          .contiguous();
    };
    dataset.images = mirrored(still_.images);
    if (still_.masks.defined()) dataset.masks = mirrored(still_.masks.unsqueeze(1)).squeeze(1);
    return dataset;
  }

 private:
  bool seamless_;
  int64_t count_;
  const train::Task& task_;
  data::Dataset still_;
};

at::Tensor predicted(nn::ViT& model, const data::Dataset& dataset) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> classes;
  for (int64_t begin = 0; begin < dataset.size(); begin += kProbeBatch) {
    const int64_t count = std::min(kProbeBatch, dataset.size() - begin);
    const at::Tensor images =
        train::normalised_images(model, dataset.images.narrow(0, begin, count));
    classes.push_back(model.forward(images).argmax(1).cpu());
  }
  return at::cat(classes);
}

double share(const at::Tensor& hits) {
  return hits.to(at::kDouble).mean().item<double>();
}

// The part of a grid (…, H, W, …) that both the image and its shifted self show: where it stood,
// and where it stands after the shift.
at::Tensor window(const at::Tensor& grid, int64_t rows_axis, Shift patches, bool after) {
  const int64_t rows = grid.size(rows_axis) - patches.down;
  const int64_t cols = grid.size(rows_axis + 1) - patches.right;
  return grid.narrow(rows_axis, after ? patches.down : 0, rows)
      .narrow(rows_axis + 1, after ? patches.right : 0, cols);
}

// Of classes of pixels `[N, H, W]`: those that still show what the image at rest showed.
std::pair<at::Tensor, at::Tensor> shared_part(const at::Tensor& still, const at::Tensor& moved,
                                              Shift shift) {
  return {window(still, 1, shift, false), window(moved, 1, shift, true)};
}

// A mask moves along with the image, so that the same answer is the same mask, moved.
ProbeTable mask_shifts(nn::ViT& model, const ShiftedImages& images) {
  ProbeTable table{"shifts by pixels, the mean of right and down",
                   {"pixels", "same answer %", "mean IoU %", "boundary F1 %"}};
  const train::Task& task = train::task_of(model);
  const data::Dataset still = images.moved({});
  train::check_fit(model.config(), still);
  const at::Tensor at_rest = predicted(model, still);
  for (int64_t pixels = 0; pixels <= kLargestShift; ++pixels) {
    std::vector<double> values(3, 0.0);
    for (const Shift shift : {Shift{pixels, 0}, Shift{0, pixels}}) {
      const data::Dataset moved = images.moved(shift);
      const auto [from, to] = shared_part(at_rest, predicted(model, moved), shift);
      const train::Measured measured = task.measure(model, moved);
      values[0] += 50 * share(from == to);
      values[1] += 50 * train::figure_of(measured.figures, "mean_iou");
      values[2] += 50 * train::figure_of(measured.figures, "boundary_f1");
    }
    table.rows.push_back({std::to_string(pixels), std::move(values)});
  }
  return table;
}

ProbeTable pixel_shifts(nn::ViT& model, const ShiftedImages& images) {
  if (train::task_of(model).target() == data::Target::masks) return mask_shifts(model, images);
  ProbeTable table{"shifts by pixels, the mean of right and down",
                   {"pixels", "same answer %", "top-1 %"}};
  const data::Dataset still = images.moved({});
  train::check_fit(model.config(), still);
  const at::Tensor at_rest = predicted(model, still);
  for (int64_t pixels = 0; pixels <= kLargestShift; ++pixels) {
    double same = 0, right = 0;
    for (const Shift shift : {Shift{pixels, 0}, Shift{0, pixels}}) {
      const at::Tensor classes = predicted(model, images.moved(shift));
      same += share(classes == at_rest) / 2;
      right += share(classes == still.labels) / 2;
    }
    table.rows.push_back({std::to_string(pixels), {100 * same, 100 * right}});
  }
  return table;
}

// Pearson's correlation over the last axis, averaged over the others.
double correlation(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a - a.mean(-1, true), y = b - b.mean(-1, true);
  const at::Tensor norms = x.norm(2, -1) * y.norm(2, -1);
  return ((x * y).sum(-1) / norms.clamp_min(1e-12)).mean().item<double>();
}

// How alike features are along the moved content, and at the same place.
std::pair<double, double> feature_agreement(const ModelView& still, const ModelView& moved,
                                            nn::Size2d grid, Shift patches) {
  const auto as_grid = [&](const ModelView& view) {
    const at::Tensor& f = view.features;
    const at::Tensor centred = f - f.mean(at::IntArrayRef{0, 1}, true);
    return centred.view({f.size(0), grid.height, grid.width, f.size(2)});
  };
  const at::Tensor from = window(as_grid(still), 1, patches, false);
  return {correlation(from, window(as_grid(moved), 1, patches, true)),
          correlation(from, window(as_grid(moved), 1, patches, false))};
}

// The same for the bias of all layers; not a number where there is none.
std::pair<double, double> bias_agreement(const ModelView& still, const ModelView& moved,
                                         nn::Size2d grid, Shift patches) {
  double with = 0, without = 0, largest = 0;
  for (std::size_t i = 0; i < still.layers.size(); ++i) {
    const auto part = [&](const ModelView& view, bool after) {
      const at::Tensor& bias = view.layers[i].bias;
      const at::Tensor pairs =
          bias.view({bias.size(0), bias.size(1), grid.height, grid.width, grid.height, grid.width});
      const at::Tensor cut =
          window(window(pairs, 2, patches, after), 4, patches, after).flatten(4, 5);
      return (cut - cut.mean(-1, true)).flatten(2, 4);  // (B, h, pairs)
    };
    const at::Tensor from = part(still, false);
    largest = std::max(largest, from.abs().max().item<double>());
    with += correlation(from, part(moved, true));
    without += correlation(from, part(moved, false));
  }
  if (largest < kLeastBias) return {std::nan(""), std::nan("")};
  const auto layers = static_cast<double>(still.layers.size());
  return {with / layers, without / layers};
}

ProbeTable patch_shifts(nn::ViT& model, const ShiftedImages& images) {
  const nn::ViTConfig& vit = model.config().vit;
  ProbeTable table{"shifts by whole patches: correlation with the image at rest",
                   {"shift", "features, moved along", "features, in place", "bias, moved along",
                    "bias, in place"}};
  const auto view = [&](Shift pixels) {
    const data::Dataset dataset = images.moved(pixels);
    const int64_t count = std::min(kProbeBatch, dataset.size());
    return view_model(model, train::normalised_images(model, dataset.images.narrow(0, 0, count)));
  };
  const ModelView still = view({});
  for (const auto& [name, patches] :
       {std::pair{"1 patch right", Shift{1, 0}}, std::pair{"2 patches right", Shift{2, 0}},
        std::pair{"1 patch down", Shift{0, 1}}, std::pair{"2 patches down", Shift{0, 2}}}) {
    if (patches.right >= vit.cols() || patches.down >= vit.rows()) continue;
    const ModelView moved =
        view({patches.right * vit.patch_size.width, patches.down * vit.patch_size.height});
    const nn::Size2d grid{vit.rows(), vit.cols()};
    const auto features = feature_agreement(still, moved, grid, patches);
    const auto bias = bias_agreement(still, moved, grid, patches);
    table.rows.push_back({name, {features.first, features.second, bias.first, bias.second}});
  }
  return table;
}

}  // namespace

ProbeResult probe_translation(nn::ViT& model, const ProbeOptions& options) {
  const ShiftedImages images(model, options);
  ProbeResult result{
      .name = "translation",
      .question = fmt::format(
          "What a shift of the image changes, on {}: answers under shifts of 0 to {} pixels, and "
          "whether features and bias move along with the image under shifts by whole patches ({}).",
          options.data.name, kLargestShift,
          images.seamless() ? "new background comes in without a seam"
                            : "what comes in at the border is mirrored"),
      .reading = ""};
  result.tables.push_back(pixel_shifts(model, images));
  result.tables.push_back(patch_shifts(model, images));
  const auto& shifts = result.tables[0].rows;
  const auto& patches = result.tables[1].rows;
  result.reading = fmt::format("{:.1f} % of the answers stay the same at a shift of {} pixels.",
                               shifts.back().values[0], kLargestShift);
  if (!patches.empty()) {
    result.reading += fmt::format(
        " After one patch to the right, features correlate {:.2f} with those of the same content "
        "and {:.2f} with those of the same place.",
        patches[0].values[0], patches[0].values[1]);
    if (std::isnan(patches[0].values[2])) result.reading += " This encoding has no bias to move.";
  }
  return result;
}

}  // namespace sape2::study
