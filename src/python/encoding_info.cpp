#include "python/encoding_info.h"

#include "python/said.h"

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>
#include <torch/nn/module.h>

#include <typeinfo>

namespace sape2::python {
namespace {

using Json = nlohmann::ordered_json;

const char* name_of(nn::OptionKind kind) {
  return kind == nn::OptionKind::choice    ? "choice"
         : kind == nn::OptionKind::integer ? "integer"
                                           : "number";
}

Json to_json(const nn::EncodingOption& option) {
  return {{"name", option.name},
          {"kind", name_of(option.kind)},
          {"description", option.description},
          {"choices", option.choices},
          {"default", option.default_value.value_or(option.default_text)}};
}

// Null where the encoding cannot start without effect.
Json to_json(const std::optional<nn::SilentStart>& start) {
  if (!start) return nullptr;
  return {{"encoding", start->encoding.to_string()}, {"zeroed", start->zeroed}};
}

Json parameters_of(const torch::nn::Module& owner) {
  Json list = Json::array();
  for (const auto& item : owner.named_parameters()) {
    list.push_back({{"name", item.key()}, {"shape", item.value().sizes().vec()}});
  }
  return list;
}

}  // namespace

nn::EncodingShape shape_of(c10::IntArrayRef numbers) {
  if (numbers.size() != 5) {
    throw Error("a model's shape has " + std::to_string(numbers.size()) +
                " numbers; width, heads, rows, cols and prefix were expected");
  }
  const nn::EncodingShape shape{numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]};
  const auto positive = [](int64_t n) { return n > 0 && n <= (int64_t{1} << 20); };
  const bool fits = positive(shape.width) && positive(shape.heads) && positive(shape.rows) &&
                    positive(shape.cols) && positive(shape.prefix + 1);
  if (!fits || shape.width % shape.heads) {
    throw Error("width " + std::to_string(shape.width) + ", " + std::to_string(shape.heads) +
                " heads, a grid of " + std::to_string(shape.rows) + "×" +
                std::to_string(shape.cols) + " and " + std::to_string(shape.prefix) +
                " prefix tokens make no model; a width that the heads divide, a grid of at least "
                "1×1 and no negative number were expected");
  }
  return shape;
}

std::string encodings_json() {
  Json list = Json::array();
  for (const nn::EncodingDefinition& definition : nn::encoding_definitions()) {
    Json options = Json::array();
    for (const nn::EncodingOption& option : definition.options) options.push_back(to_json(option));
    list.push_back(
        {{"name", definition.name}, {"summary", definition.summary}, {"options", options}});
  }
  return list.dump();
}

std::string encoding_json(const std::string& encoding, c10::IntArrayRef numbers) {
  const nn::EncodingShape shape = shape_of(numbers);
  const auto spec = nn::EncodingSpec::parse(encoding);
  const nn::Initialisation outline{.kind = nn::Initialisation::Kind::shapes_only, .seed = 0};
  std::set<std::string> decayed;
  torch::nn::Module model, layer;
  nn::ParameterScope of_model(model, outline, decayed), of_layer(layer, outline, decayed);
  const auto made = nn::make_encoding(spec, shape, of_model);
  const auto in_layer = made->make_layer(of_layer);

  // What an encoding does is asked of itself: a part that it lacks hands on what it was given.
  const at::Tensor tokens = at::empty({1, shape.tokens(), shape.width}, at::device(at::kMeta));
  nn::ForwardPass pass{.grid = {shape.rows, shape.cols, shape.prefix}};
  const bool adds = !made->embed(tokens, pass).is_same(tokens);
  const bool carries = pass.carried.defined();
  const nn::LayerEncoding& layer_part = *in_layer;
  return Json{{"encoding", spec.to_string()},
              {"name", spec.name()},
              {"with_ape", spec.with_ape()},
              {"at_input", adds || carries},
              {"in_layers", typeid(layer_part) != typeid(nn::LayerEncoding)},
              {"carries", carries},
              {"silent_start", to_json(nn::silent_start(spec))},
              {"model_parameters", parameters_of(model)},
              {"layer_parameters", parameters_of(layer)}}
      .dump();
}

}  // namespace sape2::python
