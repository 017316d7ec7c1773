#include "sape2/explain/figure.h"

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"
#include "sape2/explain/caption.h"
#include "sape2/explain/patch_choice.h"
#include "sape2/io/atomic_file.h"
#include "sape2/nn/vit.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

namespace sape2::explain {
namespace {

constexpr std::size_t kNamedShares = 2;

std::vector<ChosenPatch> chosen_on(const Inspection& inspection, const FigureOptions& options) {
  if (options.patches.empty()) {
    const ChosenPatches found = choose_patches(inspection);
    return {{found.subject, "subject"}, {found.background, "background"}};
  }
  std::vector<ChosenPatch> chosen;
  for (const Patch& patch : options.patches) {
    inspection.check(patch);
    chosen.push_back({patch, ""});
  }
  return chosen;
}

// The patch of another grid that lies at the same place of the image.
Patch moved(const Patch& patch, const infer::Grid& from, const infer::Grid& to) {
  const auto place = [](std::int64_t at, std::int64_t n, std::int64_t m) {
    return std::min(m - 1, (2 * at + 1) * m / (2 * n));
  };
  return {place(patch.y, from.rows, to.rows), place(patch.x, from.cols, to.cols)};
}

void widen(double& least, double& most, const at::Tensor& values) {
  if (!values.defined()) return;
  const at::Tensor known = values.masked_select(values.isfinite());
  if (known.numel() == 0) return;
  least = std::min(least, known.min().item<double>());
  most = std::max(most, known.max().item<double>());
}

Extent extent_of(const std::vector<const ModelPanels*>& panels) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Extent extent{kInfinity, -kInfinity};
  for (const ModelPanels* one : panels) {
    // A few weights of a whole matrix would make all others look like none.
    if (one->kind != ScaleKind::share) widen(extent.least, extent.most, one->matrix);
    for (const at::Tensor& map : one->maps) widen(extent.least, extent.most, map);
  }
  return extent;
}

ValueRange range_of(const std::vector<const ModelPanels*>& panels) {
  const auto [least, most] = extent_of(panels);
  return range_for(panels.front()->kind, least, most);
}

// "background 77 %, object 23 %": the largest shares of the pixels.
std::string mask_text(const Inspection& inspection, const infer::PixelLogits& logits) {
  const data::Image& image = inspection.image();
  const std::vector<double> shares = logits.mask({image.height, image.width}).shares;
  std::vector<std::int64_t> order(shares.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater{}, [&](std::int64_t i) { return shares[i]; });
  std::string text;
  for (const std::int64_t index : std::span(order).first(std::min(kNamedShares, order.size()))) {
    text += fmt::format("{}{} {:.0f} %", text.empty() ? "" : ", ",
                        infer::class_name(inspection.config(), index), 100 * shares[index]);
  }
  return text;
}

std::string prediction_text(const Inspection& inspection) {
  if (inspection.pixel_logits()) return mask_text(inspection, *inspection.pixel_logits());
  const infer::Prediction& first = inspection.predictions().front();
  return fmt::format("{} {:.0f} %", first.name, 100 * first.probability);
}

bool is_bias(What what) {
  return what == What::bias || what == What::bias_x || what == What::bias_y;
}

// The words to the numbers.
void describe(ModelPanels& panels, const Inspection& inspection, const FigureOptions& options) {
  if (is_bias(options.what)) {
    const LogitFactor factor = inspection.logit_factor(options.selection);
    if (factor.is_one()) panels.logit_factor = factor.low;
  }
  const auto [least, most] = extent_of({&panels});
  panels.captions = captions(inspection, options.what, options.selection, {least, most});
  panels.warning = clamp_warning(inspection).value_or("");
}

ModelPanels panels_of(const Inspection& inspection, const std::string& name,
                      std::vector<ChosenPatch> patches, const FigureOptions& options) {
  inspection.require(options.what);
  inspection.check(options.selection);
  ModelPanels panels;
  const std::string encoding = inspection.config().encoding.to_string();
  panels.title = name.empty() || name == encoding ? encoding : encoding + " (" + name + ")";
  panels.prediction = prediction_text(inspection);
  panels.grid = inspection.grid();
  panels.kind = inspection.scale_kind(options.what);
  panels.patches = std::move(patches);
  if (options.with_matrix && options.what != What::positions) {
    panels.matrix = inspection.matrix(options.what, options.selection, options.most_matrix_rows);
  }
  std::vector<Patch> places;
  for (const ChosenPatch& chosen : panels.patches) places.push_back(chosen.patch);
  const at::Tensor rows = inspection.rows(options.what, options.selection, places);
  for (std::size_t i = 0; i < places.size(); ++i) {
    panels.maps.push_back(
        rows[static_cast<std::int64_t>(i)].view({panels.grid.rows, panels.grid.cols}));
    if (options.what == What::positions) {
      panels.positions.push_back(inspection.positions(options.selection, places[i]));
    }
  }
  panels.range = range_of({&panels});
  describe(panels, inspection, options);
  return panels;
}

at::Tensor as_tensor(const data::Image& image) {
  return at::tensor(at::ArrayRef<std::uint8_t>(image.pixels), at::kByte)
      .view({image.height, image.width, image.channels});
}

void add_numbers(io::NamedTensors& numbers, const std::string& prefix, const ModelPanels& panels) {
  std::vector<std::int64_t> places;
  for (const ChosenPatch& chosen : panels.patches) {
    places.insert(places.end(), {chosen.patch.y, chosen.patch.x});
  }
  numbers[prefix + "patches"] = at::tensor(places, at::kLong).view({-1, 2});
  numbers[prefix + "maps"] = at::stack(panels.maps);
  if (panels.matrix.defined()) numbers[prefix + "matrix"] = panels.matrix;
  std::vector<at::Tensor> x, y, raster;
  for (const SoftPositions& positions : panels.positions) {
    const auto add = [](std::vector<at::Tensor>& to, const std::vector<float>& curve) {
      if (!curve.empty()) to.push_back(at::tensor(at::ArrayRef<float>(curve)));
    };
    add(x, positions.x);
    add(y, positions.y);
    add(raster, positions.raster);
  }
  if (!x.empty()) numbers[prefix + "positions_x"] = at::stack(x);
  if (!y.empty()) numbers[prefix + "positions_y"] = at::stack(y);
  if (!raster.empty()) numbers[prefix + "positions"] = at::stack(raster);
}

}  // namespace

FigureRow figure_row(const Picture& picture, const std::vector<const Inspection*>& inspections,
                     const std::vector<std::string>& names, const FigureOptions& options) {
  const Inspection& first = *inspections.at(0);
  FigureRow row{.name = picture.name, .label = picture.label, .image = first.image(), .models = {}};
  const std::vector<ChosenPatch> chosen = chosen_on(first, options);
  for (std::size_t i = 0; i < inspections.size(); ++i) {
    std::vector<ChosenPatch> here = chosen;
    for (ChosenPatch& one : here) {
      one.patch = moved(one.patch, first.grid(), inspections[i]->grid());
    }
    row.models.push_back(panels_of(*inspections[i], names.at(i), std::move(here), options));
  }
  return row;
}

void share_ranges(Figure& figure) {
  for (const ScaleKind kind : {ScaleKind::distance, ScaleKind::balanced, ScaleKind::share}) {
    std::vector<const ModelPanels*> alike;
    for (const FigureRow& row : figure.rows) {
      for (const ModelPanels& panels : row.models) {
        if (panels.kind == kind) alike.push_back(&panels);
      }
    }
    if (alike.empty()) continue;
    const ValueRange range = range_of(alike);
    for (FigureRow& row : figure.rows) {
      for (ModelPanels& panels : row.models) {
        if (panels.kind == kind) panels.range = range;
      }
    }
  }
}

io::NamedTensors figure_numbers(const Figure& figure) {
  io::NamedTensors numbers;
  for (std::size_t i = 0; i < figure.rows.size(); ++i) {
    const FigureRow& row = figure.rows[i];
    const std::string image = figure.rows.size() > 1 ? fmt::format("image{}_", i) : "";
    numbers[image + "image"] = as_tensor(row.image);
    for (std::size_t j = 0; j < row.models.size(); ++j) {
      add_numbers(numbers, image + (row.models.size() > 1 ? fmt::format("model{}_", j) : ""),
                  row.models[j]);
    }
  }
  return numbers;
}

FigureFormat figure_format(const std::filesystem::path& path) {
  std::string ending = path.extension().native();
  std::ranges::transform(ending, ending.begin(), [](unsigned char c) { return std::tolower(c); });
  if (ending == ".png") return FigureFormat::png;
  if (ending == ".svg") return FigureFormat::svg;
  if (ending == ".pdf") return FigureFormat::pdf;
  throw Error("the figure " + in_quotes(path) + " must end in .png, .svg or .pdf");
}

void write_figure(const std::filesystem::path& path, const Figure& figure,
                  const DrawOptions& options) {
  io::write_file(path, render_figure(figure, figure_format(path), options));
}

}  // namespace sape2::explain
