#include "serve/api.h"

#include "sape2/base/in_quotes.h"
#include "sape2/explain/caption.h"
#include "sape2/explain/patch_choice.h"
#include "sape2/nn/vit.h"
#include "sape2/version.h"

#include "serve/json_text.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <mutex>
#include <random>

namespace sape2::serve {
namespace {

using Json = nlohmann::ordered_json;
using explain::What;

constexpr const char* kJsonType = "application/json";
constexpr std::int64_t kLargestKeptSide = 1024;
constexpr std::int64_t kLargestSize = 4096;
constexpr int kScaleSteps = 33;
constexpr std::int64_t kKeptPatches = 64;  // grids of no more keep all their rows
constexpr double kQuickWork = 2e9;         // multiplications: a tenth of a second on one thread
constexpr std::int64_t kMostMatrixPatches = 1024;  // a figure of more has no N×N panel
constexpr std::size_t kTop = 5;
constexpr std::string_view kDataPrefix = "data:";

Answer json_answer(const Json& json) {
  return {kJsonType, json.dump(-1, ' ', false, Json::error_handler_t::replace)};
}

const std::string* value_of(const Query& query, const std::string& name) {
  const auto found = query.find(name);
  return found == query.end() ? nullptr : &found->second;
}

std::string required(const Query& query, const std::string& name) {
  const std::string* value = value_of(query, name);
  if (value == nullptr || value->empty()) throw Error("the request lacks \"" + name + "\"");
  return *value;
}

std::int64_t whole_number(const std::string& name, std::string_view text, std::int64_t least,
                          std::int64_t most) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && value >= least && value <= most) {
    return value;
  }
  throw Error(fmt::format("\"{}\" is {}, expected a whole number from {} to {}", name,
                          in_quotes(text), least, most));
}

// `mean` or nothing, or a number from 1.
std::optional<std::int64_t> chosen(const Query& query, const std::string& name) {
  const std::string* value = value_of(query, name);
  if (value == nullptr || value->empty() || *value == "mean") return std::nullopt;
  return whole_number(name, *value, 1, std::numeric_limits<std::int32_t>::max()) - 1;
}

explain::Selection selection_of(const Query& query) {
  return {chosen(query, "layer"), chosen(query, "head")};
}

What what_of(const Query& query) {
  const std::string* value = value_of(query, "what");
  return value == nullptr ? What::bias : explain::parse_what(*value);
}

explain::Patch patch_of(const Query& query) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  return {whole_number("y", required(query, "y"), 0, kMost),
          whole_number("x", required(query, "x"), 0, kMost)};
}

std::int64_t size_of(const Query& query) {
  const std::string* value = value_of(query, "size");
  if (value == nullptr || value->empty()) return 0;
  return whole_number("size", *value, 0, kLargestSize);
}

Json patch_json(const explain::Patch& patch) {
  return {patch.y, patch.x};
}

std::string random_name() {
  std::random_device device;
  std::string name;
  for (int i = 0; i < 4; ++i) name += fmt::format("{:08x}", device());
  return name;
}

data::Image kept_size(data::Image image) {
  const std::int64_t longer = std::max(image.height, image.width);
  if (longer <= kLargestKeptSide) return image;
  const double scale = static_cast<double>(kLargestKeptSide) / static_cast<double>(longer);
  const auto scaled = [&](std::int64_t side) {
    return std::max<std::int64_t>(1, std::llround(static_cast<double>(side) * scale));
  };
  return data::resize(image, scaled(image.height), scaled(image.width));
}

Json scales_json() {
  Json scales = Json::object();
  for (const auto palette : {explain::Palette::green, explain::Palette::cividis}) {
    Json& kinds = scales[std::string(to_string(palette))];
    for (const auto kind : {explain::ScaleKind::distance, explain::ScaleKind::balanced,
                            explain::ScaleKind::share, explain::ScaleKind::gate}) {
      Json& table = kinds[std::string(to_string(kind))];
      for (const explain::Rgb& colour : colour_table(kind, palette, kScaleSteps)) {
        table.push_back({std::lround(255 * colour.red), std::lround(255 * colour.green),
                         std::lround(255 * colour.blue)});
      }
    }
  }
  return scales;
}

}  // namespace

/// One quantity of one layer and head: its range for colours and, of a small grid, all its rows.
struct Api::Shown {
  explain::ValueRange range;
  at::Tensor rows;    // (patches, patches), or undefined
  std::string words;  // JSON: what the map shows, and what its values add to the logits
};

/// A model that has looked at an image, and what was shown of it so far.
struct Api::Looked {
  explicit Looked(explain::Inspection seen) : inspection(std::move(seen)) {}

  const explain::Inspection inspection;
  const std::optional<std::string> warning = explain::clamp_warning(inspection);
  std::mutex mutex;                    // of `shown`
  std::map<std::string, Shown> shown;  // only grows

  // What it holds once everything has been shown.
  std::size_t most_bytes() const {
    const auto patches = static_cast<std::size_t>(inspection.grid().patches());
    if (patches > static_cast<std::size_t>(kKeptPatches)) return inspection.bytes();
    const auto views =
        static_cast<std::size_t>((inspection.layers() + 1) * (inspection.heads() + 1));
    return inspection.bytes() +
           explain::what_names().size() * views * patches * patches * sizeof(float);
  }
};

Api::Api(const std::vector<ServedModel>& models, const data::Dataset* dataset, std::string split,
         const Limits& limits)
    : models_(models),
      dataset_(dataset),
      split_(std::move(split)),
      limits_(limits),
      uploads_(limits.upload_memory),
      looked_(limits.inspection_memory) {
  for (const ServedModel& served : models_) {
    std::int64_t count = 0;
    for (const at::Tensor& parameter : served.model->parameters()) count += parameter.numel();
    parameters_.push_back(count);
  }
}

Api::~Api() = default;

Answer Api::setup() {
  Json models = Json::array();
  for (const ServedModel& served : models_) {
    const nn::ModelConfig& config = served.model->config();
    models.push_back({{"name", served.name},
                      {"encoding", config.encoding.to_string()},
                      {"layers", config.vit.depth},
                      {"heads", config.vit.heads},
                      {"image_size", {config.vit.image_size.height, config.vit.image_size.width}},
                      {"patch_size", {config.vit.patch_size.height, config.vit.patch_size.width}},
                      {"classes", config.vit.classes}});
  }
  Json data = nullptr;
  if (dataset_ != nullptr) {
    data = {{"name", dataset_->name}, {"split", split_}, {"images", dataset_->size()}};
  }
  return json_answer({{"version", SAPE2_VERSION},
                      {"models", std::move(models)},
                      {"data", std::move(data)},
                      {"what", explain::what_names()},
                      {"limits",
                       {{"body_bytes", limits_.body_bytes},
                        {"image_pixels", data::kMaxImagePixels},
                        {"patches", limits_.patches}}},
                      {"scales", scales_json()}});
}

Answer Api::keep_image(std::string_view bytes) {
  const std::span file(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  auto image = std::make_shared<data::Image>(kept_size(data::decode_image(file, "the upload")));
  const std::string name = random_name();
  const Json answer{{"image", name}, {"height", image->height}, {"width", image->width}};
  const std::size_t size = image->pixels.size();
  uploads_.put(name, std::move(image), size);
  return json_answer(answer);
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

std::size_t Api::model_index(const std::string& text) const {
  return static_cast<std::size_t>(
      whole_number("model", text, 0, static_cast<std::int64_t>(models_.size()) - 1));
}

// Each patch meets each parameter, and in each layer each other patch. The shape of the image is
// not known yet.
bool Api::takes_long(const Query& query) const {
  const std::size_t model = model_index(required(query, "model"));
  const nn::ViTConfig& vit = models_[model].model->config().vit;
  const std::int64_t size = size_of(query);
  const auto along = [&](std::int64_t trained, std::int64_t patch) {
    return static_cast<double>(size == 0 ? trained : size) / static_cast<double>(patch);
  };
  const double patches = along(vit.image_size.height, vit.patch_size.height) *
                         along(vit.image_size.width, vit.patch_size.width);
  const auto meetings = static_cast<double>(2 * vit.width * vit.depth);
  return patches * (static_cast<double>(parameters_[model]) + patches * meetings) > kQuickWork;
}

std::shared_ptr<Api::Looked> Api::look(const Query& query, std::size_t model) {
  const std::string image = required(query, "image");
  const std::int64_t size = size_of(query);
  const std::string key = fmt::format("{}/{}/{}", model, size, image);
  if (auto known = looked_.find(key)) return known;
  const auto looked = std::make_shared<Looked>(explain::Inspection(
      models_[model].model, picture_named(image).image, {.shorter_side = size}, limits_.patches));
  looked_.put(key, looked, looked->most_bytes());
  return looked;
}

Answer Api::inspect(const Query& query) {
  const auto looked = look(query, model_index(required(query, "model")));
  const explain::Inspection& seen = looked->inspection;
  Json offers = Json::object();
  for (const std::string& name : explain::what_names()) {
    try {
      seen.require(explain::parse_what(name));
      offers[name] = true;
    } catch (const Error& error) {
      offers[name] = error.what();
    }
  }
  Json predictions = Json::array();
  for (std::size_t i = 0; i < std::min(kTop, seen.predictions().size()); ++i) {
    const study::Prediction& one = seen.predictions()[i];
    predictions.push_back(
        {{"class", one.name}, {"index", one.index}, {"probability", one.probability}});
  }
  const explain::ChosenPatches patches = explain::choose_patches(seen);
  const nn::ViTConfig& vit = seen.model().config().vit;
  const explain::Picture picture = picture_named(required(query, "image"));
  return json_answer({{"name", picture.name},
                      {"label", picture.label},
                      {"rows", seen.grid().rows},
                      {"cols", seen.grid().cols},
                      {"height", seen.image().height},
                      {"width", seen.image().width},
                      {"layers", seen.layers()},
                      {"heads", seen.heads()},
                      {"trained", {vit.rows(), vit.cols()}},
                      {"warning", looked->warning ? Json(*looked->warning) : Json()},
                      {"offers", std::move(offers)},
                      {"predictions", std::move(predictions)},
                      {"subject", patch_json(patches.subject)},
                      {"background", patch_json(patches.background)}});
}

// The range is the same for every patch of an image, so that colours can be compared while the
// pointer moves: found from all patches, or from some spread over a large grid.
const Api::Shown& Api::show(Looked& looked, What what, const explain::Selection& selection) {
  const std::string key = fmt::format("{}/{}/{}", to_string(what), selection.layer.value_or(-1),
                                      selection.head.value_or(-1));
  {
    const std::lock_guard lock(looked.mutex);
    const auto known = looked.shown.find(key);
    if (known != looked.shown.end()) return known->second;
  }
  const explain::Inspection& seen = looked.inspection;
  const at::Tensor values = seen.rows(what, selection, explain::spread_patches(seen.grid()));
  const at::Tensor finite = values.masked_select(values.isfinite());
  const bool any = finite.numel() > 0;
  const explain::Extent extent{any ? finite.min().item<double>() : 0,
                               any ? finite.max().item<double>() : 0};
  Json words{{"caption", explain::captions(seen, what, selection, extent)},
             {"logit_factor", nullptr}};
  if (what == What::bias || what == What::bias_x || what == What::bias_y) {
    const explain::LogitFactor factor = seen.logit_factor(selection);
    words["logit_factor"] = {factor.low, factor.high};
  }
  Shown shown{explain::range_for(seen.scale_kind(what), extent.least, extent.most),
              values.size(0) == seen.grid().patches() ? values : at::Tensor(),
              words.dump(-1, ' ', false, Json::error_handler_t::replace)};
  const std::lock_guard lock(looked.mutex);
  return looked.shown.emplace(key, std::move(shown)).first->second;
}

Answer Api::rows(const Query& query) {
  const auto looked = look(query, model_index(required(query, "model")));
  const What what = what_of(query);
  const explain::Selection selection = selection_of(query);
  const explain::Patch patch = patch_of(query);
  const explain::Inspection& seen = looked->inspection;
  seen.check(selection);
  seen.check(patch);
  const Shown& shown = show(*looked, what, selection);
  const explain::ValueRange& range = shown.range;
  const at::Tensor values = shown.rows.defined() ? shown.rows[patch.y * seen.grid().cols + patch.x]
                                                 : seen.rows(what, selection, {patch})[0];
  std::string body = fmt::format(
      R"({{"rows":{},"cols":{},"y":{},"x":{},"kind":"{}","low":{},"high":{},"values":{})",
      seen.grid().rows, seen.grid().cols, patch.y, patch.x, to_string(seen.scale_kind(what)),
      json_number(range.low), json_number(range.high), json_numbers(values));
  if (what == What::positions) {
    const explain::SoftPositions positions = seen.positions(selection, patch);
    const auto add = [&](const char* name, const at::Tensor& curve) {
      if (curve.defined()) body += fmt::format(R"(,"{}":{})", name, json_numbers(curve));
    };
    add("along_x", positions.x);
    add("along_y", positions.y);
    add("raster", positions.raster);
  }
  // The words are an object of their own; its members join this one's.
  return {kJsonType, body + "," + shown.words.substr(1)};
}

Answer Api::figure(const Query& query) {
  std::vector<std::shared_ptr<Looked>> held;
  std::vector<const explain::Inspection*> inspections;
  std::vector<std::string> names;
  for (const char* name : {"model", "model2"}) {
    const std::string* text = value_of(query, name);
    if (text == nullptr || text->empty()) continue;
    const std::size_t model = model_index(*text);
    held.push_back(look(query, model));
    inspections.push_back(&held.back()->inspection);
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
