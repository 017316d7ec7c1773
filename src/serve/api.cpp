#include "serve/api.h"

#include "sape2/base/in_quotes.h"
#include "sape2/nn/vit.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>
#include <random>

namespace sape2::serve {
namespace {

constexpr double kQuickWork = 2e9;  // multiplications: a tenth of a second on one thread
constexpr std::int64_t kMostMatrixPatches = 1024;  // a figure of more has no N×N panel
constexpr std::string_view kDataPrefix = "data:";

std::string random_name() {
  std::random_device device;
  std::string name;
  for (int i = 0; i < 4; ++i) name += fmt::format("{:08x}", device());
  return name;
}

}  // namespace

Api::Api(const std::vector<ServedModel>& models, const data::Dataset* dataset, std::string split,
         const Limits& limits)
    : PageApi({.body_bytes = limits.body_bytes,
               .inspection_memory = limits.inspection_memory,
               .patches = limits.patches}),
      models_(models),
      dataset_(dataset),
      split_(std::move(split)),
      limits_(limits),
      uploads_(limits.upload_memory) {
  for (const ServedModel& served : models_) {
    std::int64_t count = 0;
    for (const at::Tensor& parameter : served.model->parameters()) count += parameter.numel();
    parameters_.push_back(count);
  }
}

Api::~Api() = default;

std::string Api::model_name(std::size_t model) const {
  return models_[model].name;
}

const nn::ModelConfig& Api::config(std::size_t model) const {
  return models_[model].model->config();
}

std::optional<ImageList> Api::image_list() const {
  if (dataset_ == nullptr) return std::nullopt;
  return ImageList{dataset_->name, split_, dataset_->size()};
}

std::unique_ptr<explain::Look> Api::look_at(std::size_t model, const data::Image& image,
                                            const explain::InputSize& size) {
  return std::make_unique<explain::Inspection>(models_[model].model, image, size, limits_.patches);
}

Answer Api::keep_image(std::string_view bytes) {
  const std::span file(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  auto image = std::make_shared<data::Image>(kept_size(data::decode_image(file, "the upload")));
  const std::string name = random_name();
  const nlohmann::json answer{{"image", name}, {"height", image->height}, {"width", image->width}};
  const std::size_t size = image->pixels.size();
  uploads_.put(name, std::move(image), size);
  return {"application/json", answer.dump()};
}

explain::Picture Api::picture_named(const std::string& name) {
  if (name.starts_with(kDataPrefix)) {
    if (dataset_ == nullptr) throw NotFound("no data set is served here; drop an image instead");
    const std::int64_t index =
        whole_number("image", std::string_view(name).substr(kDataPrefix.size()), 0,
                     std::numeric_limits<std::int32_t>::max());
    if (index >= dataset_->size()) {
      throw NotFound(fmt::format("{} has no image {}; the last is {}", dataset_->name, index,
                                 dataset_->size() - 1));
    }
    return explain::picture_of(*dataset_, split_, index);
  }
  const auto kept = uploads_.find(name);
  if (!kept) {
    throw NotFound("the image " + in_quotes(name) + " is not kept here any more; drop it again");
  }
  return {.name = "your image", .image = *kept, .label = ""};
}

Answer Api::picture(const Query& query) {
  const auto bytes = data::encode_png(picture_named(required(query, "image")).image);
  return {"image/png", std::string(bytes.begin(), bytes.end())};
}

// Each patch meets each parameter, and in each layer each other patch. The shape of the image is
// not known yet.
bool Api::takes_long(const Query& query) const {
  const std::size_t model = model_index(required(query, "model"));
  const nn::ViTConfig& vit = config(model).vit;
  const std::int64_t size = size_of(query);
  const auto along = [&](std::int64_t trained, std::int64_t patch) {
    return static_cast<double>(size == 0 ? trained : size) / static_cast<double>(patch);
  };
  const double patches = along(vit.image_size.height, vit.patch_size.height) *
                         along(vit.image_size.width, vit.patch_size.width);
  const auto meetings = static_cast<double>(2 * vit.width * vit.depth);
  return patches * (static_cast<double>(parameters_[model]) + patches * meetings) > kQuickWork;
}

Answer Api::figure(const Query& query) {
  std::vector<std::shared_ptr<Looked>> held;
  std::vector<const explain::Inspection*> inspections;
  std::vector<std::string> names;
  for (const char* name : {"model", "model2"}) {
    const std::string* text = value_of(query, name);
    if (text == nullptr || text->empty()) continue;
    const std::size_t model = model_index(*text);
    held.push_back(looked(query, model));
    // look_at() makes nothing else.
    inspections.push_back(static_cast<const explain::Inspection*>(&look_of(*held.back())));
    names.push_back(models_[model].name);
  }
  if (held.empty()) throw Error("the request lacks \"model\"");
  const std::string* format = value_of(query, "format");
  const std::string ending = format == nullptr ? "png" : *format;
  if (ending != "png" && ending != "svg" && ending != "pdf") {
    throw Error("\"format\" is " + in_quotes(ending) + ", expected png, svg or pdf");
  }
  const std::string* colours = value_of(query, "colours");
  const explain::DrawOptions draw{.palette = colours == nullptr ? explain::Palette::green
                                                                : explain::parse_palette(*colours)};
  explain::FigureOptions options{.what = what_of(query), .selection = selection_of(query)};
  if (value_of(query, "y") != nullptr) options.patches = {patch_of(query)};
  options.with_matrix = inspections.front()->grid().patches() <= kMostMatrixPatches;
  const explain::Figure figure{.what = options.what,
                               .selection = options.selection,
                               .rows = {explain::figure_row(picture_named(required(query, "image")),
                                                            inspections, names, options)}};
  const char* type = ending == "png"   ? "image/png"
                     : ending == "svg" ? "image/svg+xml"
                                       : "application/pdf";
  return {type, explain::render_figure(figure, explain::figure_format("figure." + ending), draw)};
}

}  // namespace sape2::serve
