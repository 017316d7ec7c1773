#include "serve/page_api.h"

#include "sape2/data/image.h"
#include "sape2/explain/caption.h"
#include "sape2/explain/colours.h"
#include "sape2/explain/patch_choice.h"
#include "sape2/version.h"

#include "serve/json_answer.h"
#include "serve/json_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <span>

namespace sape2::serve {
namespace {

using Json = nlohmann::ordered_json;
using explain::What;

constexpr int kScaleSteps = 33;
constexpr std::int64_t kLargestKeptSide = 1024;
constexpr std::int64_t kKeptPatches = 64;  // grids of no more keep all their rows
constexpr std::size_t kTop = 5;

Json patch_json(const explain::Patch& patch) {
  return {patch.y, patch.x};
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

nn::Size2d kept_size(nn::Size2d size) {
  const std::int64_t longer = std::max(size.height, size.width);
  if (longer <= kLargestKeptSide) return size;
  const double scale = static_cast<double>(kLargestKeptSide) / static_cast<double>(longer);
  const auto scaled = [&](std::int64_t side) {
    return std::max<std::int64_t>(1, std::llround(static_cast<double>(side) * scale));
  };
  return {scaled(size.height), scaled(size.width)};
}

data::Image kept_size(data::Image image) {
  const nn::Size2d size{image.height, image.width}, kept = kept_size(size);
  return kept == size ? image : data::resize(image, kept.height, kept.width);
}

/// One quantity of one layer and head: its range for colours and, of a small grid, all its rows.
struct PageApi::Shown {
  explain::ValueRange range;
  std::vector<float> rows;  // (patches, patches), or empty
  std::string words;        // JSON: what the map shows, and what its values add to the logits
};

/// A model that has looked at an image, and what was shown of it so far.
struct PageApi::Looked {
  explicit Looked(std::unique_ptr<explain::Look> seen) : look(std::move(seen)) {}

  const std::unique_ptr<const explain::Look> look;
  const std::optional<std::string> warning = explain::clamp_warning(*look);
  std::mutex mutex;                    // of `shown`
  std::map<std::string, Shown> shown;  // only grows

  // What it holds once everything has been shown.
  std::size_t most_bytes() const {
    const auto patches = static_cast<std::size_t>(look->grid().patches());
    if (patches > static_cast<std::size_t>(kKeptPatches)) return look->bytes();
    const auto views = static_cast<std::size_t>((look->layers() + 1) * (look->heads() + 1));
    return look->bytes() + explain::what_names().size() * views * patches * patches * sizeof(float);
  }
};

PageApi::PageApi(const PageLimits& limits) : limits_(limits), looked_(limits.inspection_memory) {}

PageApi::~PageApi() = default;

Answer PageApi::setup() {
  Json all = Json::array();
  for (std::size_t i = 0; i < models(); ++i) {
    const nn::ViTConfig& vit = config(i).vit;
    all.push_back({{"name", model_name(i)},
                   {"encoding", config(i).encoding.to_string()},
                   {"task", config(i).task},
                   {"layers", vit.depth},
                   {"heads", vit.heads},
                   {"image_size", {vit.image_size.height, vit.image_size.width}},
                   {"patch_size", {vit.patch_size.height, vit.patch_size.width}},
                   {"classes", vit.classes}});
  }
  Json data = nullptr;
  if (const auto list = image_list()) {
    data = {{"name", list->name}, {"split", list->split}, {"images", list->images}};
  }
  return json_answer({{"version", SAPE2_VERSION},
                      {"models", std::move(all)},
                      {"data", std::move(data)},
                      {"what", explain::what_names()},
                      {"limits",
                       {{"body_bytes", limits_.body_bytes},
                        {"image_pixels", data::kMaxImagePixels},
                        {"patches", limits_.patches}}},
                      {"scales", scales_json()}});
}

std::size_t PageApi::model_index(const std::string& text) const {
  return static_cast<std::size_t>(
      whole_number("model", text, 0, static_cast<std::int64_t>(models()) - 1));
}

const explain::Look& PageApi::look_of(const Looked& looked) {
  return *looked.look;
}

std::shared_ptr<PageApi::Looked> PageApi::looked(const Query& query, std::size_t model) {
  const std::string image = required(query, "image");
  const std::int64_t size = size_of(query);
  const std::string key = fmt::format("{}/{}/{}", model, size, image);
  if (auto known = looked_.find(key)) return known;
  const auto looked =
      std::make_shared<Looked>(look_at(model, picture_named(image).image, {.shorter_side = size}));
  looked_.put(key, looked, looked->most_bytes());
  return looked;
}

Answer PageApi::inspect(const Query& query) {
  const auto looked = this->looked(query, model_index(required(query, "model")));
  const explain::Look& seen = *looked->look;
  Json offers = Json::object();
  for (const std::string& name : explain::what_names()) {
    try {
      seen.require(explain::parse_what(name));
      offers[name] = true;
    } catch (const Error& error) {
      offers[name] = error.what();
    }
  }
  const std::span<const infer::Prediction> predictions = seen.predictions();
  const explain::ChosenPatches patches = explain::choose_patches(seen);
  const nn::ViTConfig& vit = seen.config().vit;
  const explain::Picture picture = picture_named(required(query, "image"));
  Json mask = nullptr;
  if (seen.pixel_logits()) {
    const nn::Size2d size = kept_size(nn::Size2d{picture.image.height, picture.image.width});
    mask = {{"height", size.height}, {"width", size.width}};
  }
  return json_answer(
      {{"name", picture.name},
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
       {"predictions", predictions_json(predictions.first(std::min(kTop, predictions.size())))},
       {"mask", std::move(mask)},
       {"subject", patch_json(patches.subject)},
       {"background", patch_json(patches.background)}});
}

// The range is the same for every patch of an image, so that colours can be compared while the
// pointer moves: found from all patches, or from some spread over a large grid.
const PageApi::Shown& PageApi::show(Looked& looked, What what,
                                    const explain::Selection& selection) {
  const std::string key = fmt::format("{}/{}/{}", to_string(what), selection.layer.value_or(-1),
                                      selection.head.value_or(-1));
  {
    const std::lock_guard lock(looked.mutex);
    const auto known = looked.shown.find(key);
    if (known != looked.shown.end()) return known->second;
  }
  const explain::Look& seen = *looked.look;
  const std::vector<explain::Patch> patches = explain::spread_patches(seen.grid());
  std::vector<float> values = seen.values(what, selection, patches);
  explain::Extent extent;
  bool any = false;
  for (const float value : values) {
    if (!std::isfinite(value)) continue;
    extent.least = any ? std::min<double>(extent.least, value) : value;
    extent.most = any ? std::max<double>(extent.most, value) : value;
    any = true;
  }
  Json words{{"caption", explain::captions(seen, what, selection, extent)},
             {"logit_factor", nullptr}};
  if (what == What::bias || what == What::bias_x || what == What::bias_y) {
    const explain::LogitFactor factor = seen.logit_factor(selection);
    words["logit_factor"] = {factor.low, factor.high};
  }
  Shown shown{
      explain::range_for(seen.scale_kind(what), extent.least, extent.most), {}, json_text(words)};
  if (static_cast<std::int64_t>(patches.size()) == seen.grid().patches()) {
    shown.rows = std::move(values);
  }
  const std::lock_guard lock(looked.mutex);
  return looked.shown.emplace(key, std::move(shown)).first->second;
}

Answer PageApi::rows(const Query& query) {
  const auto looked = this->looked(query, model_index(required(query, "model")));
  const What what = what_of(query);
  const explain::Selection selection = selection_of(query);
  const explain::Patch patch = patch_of(query);
  const explain::Look& seen = *looked->look;
  seen.check(selection);
  seen.check(patch);
  const Shown& shown = show(*looked, what, selection);
  const explain::ValueRange& range = shown.range;
  const auto count = static_cast<std::size_t>(seen.grid().patches());
  const auto number = static_cast<std::size_t>(patch.y * seen.grid().cols + patch.x);
  std::vector<float> own;
  if (shown.rows.empty()) own = seen.values(what, selection, {patch});
  const std::span<const float> values =
      shown.rows.empty() ? std::span<const float>(own)
                         : std::span<const float>(shown.rows).subspan(number * count, count);
  std::string body = fmt::format(
      R"({{"rows":{},"cols":{},"y":{},"x":{},"kind":"{}","low":{},"high":{},"values":{})",
      seen.grid().rows, seen.grid().cols, patch.y, patch.x, to_string(seen.scale_kind(what)),
      json_number(range.low), json_number(range.high), json_numbers(values));
  if (what == What::positions) {
    const explain::SoftPositions positions = seen.positions(selection, patch);
    const auto add = [&](const char* name, const std::vector<float>& curve) {
      if (!curve.empty()) body += fmt::format(R"(,"{}":{})", name, json_numbers(curve));
    };
    add("along_x", positions.x);
    add("along_y", positions.y);
    add("raster", positions.raster);
  }
  // The words are an object of their own; its members join this one's.
  return {kJsonType, body + "," + shown.words.substr(1)};
}

}  // namespace sape2::serve
