// What the page asks of a model for segmentation.
#include "sape2/data/mask.h"
#include "sape2/infer/pixel_logits.h"

#include "serve/json_answer.h"
#include "serve/page_api.h"

#include <utility>

namespace sape2::serve {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kNamedClasses = 5;

const infer::PixelLogits& logits_of(const explain::Look& seen) {
  if (!seen.pixel_logits()) {
    throw Error("the model's task is " + seen.config().task +
                ", so that it has no mask; /api/inspect has its predictions");
  }
  return *seen.pixel_logits();
}

// Row by row: a class, and how many pixels in a row have it.
Json runs_of(const data::Image& mask) {
  Json runs = Json::array();
  for (std::size_t begin = 0; begin < mask.pixels.size();) {
    std::size_t end = begin + 1;
    while (end < mask.pixels.size() && mask.pixels[end] == mask.pixels[begin]) ++end;
    runs.push_back(mask.pixels[begin]);
    runs.push_back(end - begin);
    begin = end;
  }
  return runs;
}

}  // namespace

Answer PageApi::mask(const Query& query) {
  const auto looked = this->looked(query, model_index(required(query, "model")));
  const explain::Look& seen = look_of(*looked);
  const data::Image image = picture_named(required(query, "image")).image;
  const nn::Size2d size = kept_size(nn::Size2d{image.height, image.width});
  const infer::MaskPrediction found = logits_of(seen).mask(size);
  Json classes = Json::array();
  for (std::size_t i = 0; i < found.shares.size(); ++i) {
    const auto index = static_cast<std::int64_t>(i);
    classes.push_back({{"class", infer::class_name(seen.config(), index)},
                       {"share", found.shares[i]},
                       {"colour", data::mask_colour(index)}});
  }
  return json_answer({{"height", size.height},
                      {"width", size.width},
                      {"classes", std::move(classes)},
                      {"runs", runs_of(found.mask)}});
}

Answer PageApi::pixel(const Query& query) {
  const auto looked = this->looked(query, model_index(required(query, "model")));
  const explain::Look& seen = look_of(*looked);
  const data::Image image = picture_named(required(query, "image")).image;
  const explain::Patch place = patch_of(query);  // a row and a column as well
  const std::vector<float> logits =
      logits_of(seen).at(kept_size(nn::Size2d{image.height, image.width}), place.y, place.x);
  return json_answer(
      {{"y", place.y},
       {"x", place.x},
       {"predictions", predictions_json(infer::ranked(seen.config(), logits, kNamedClasses))}});
}

}  // namespace sape2::serve
