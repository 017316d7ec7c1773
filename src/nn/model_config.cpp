#include "sape2/nn/model_config.h"

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"
#include "sape2/base/utf8.h"

#include "nn/json_reader.h"

#include <cmath>

namespace sape2::nn {
namespace {

// The last number of a byte means that a pixel is not counted.
constexpr int64_t kMostPixelClasses = 255;

Json vit_to_json(const ViTConfig& c) {
  return {{"image_size", {c.image_size.height, c.image_size.width}},
          {"patch_size", {c.patch_size.height, c.patch_size.width}},
          {"channels", c.channels},
          {"classes", c.classes},
          {"depth", c.depth},
          {"width", c.width},
          {"heads", c.heads},
          {"mlp_ratio", c.mlp_ratio},
          {"pooling", to_string(c.pooling)},
          {"registers", c.registers},
          {"embedding_dropout", c.embedding_dropout},
          {"projection_dropout", c.projection_dropout},
          {"mlp_dropout", c.mlp_dropout},
          {"stochastic_depth", c.stochastic_depth},
          {"layer_scale", c.layer_scale ? Json(*c.layer_scale) : Json()}};
}

Size2d size_from(JsonReader& read, const std::string& key) {
  constexpr const char* kExpected = "a list of two whole numbers";
  const auto sides = read.list<int64_t>(key, &Json::is_number_integer, kExpected);
  if (sides.size() != 2) read.wrong(key, read.at(key), kExpected);
  return {sides[0], sides[1]};
}

ViTConfig vit_from_json(const Json& json) {
  JsonReader read(json, "the model configuration's \"vit\"");
  ViTConfig c;
  c.image_size = size_from(read, "image_size");
  c.patch_size = size_from(read, "patch_size");
  c.channels = read.integer("channels");
  c.classes = read.integer("classes");
  c.depth = read.integer("depth");
  c.width = read.integer("width");
  c.heads = read.integer("heads");
  c.mlp_ratio = read.number("mlp_ratio");
  c.pooling = parse_pooling(read.text("pooling"));
  c.registers = read.integer("registers");
  c.embedding_dropout = read.number("embedding_dropout");
  c.projection_dropout = read.number("projection_dropout");
  c.mlp_dropout = read.number("mlp_dropout");
  c.stochastic_depth = read.number("stochastic_depth");
  c.layer_scale = read.number_or_null("layer_scale");
  read.refuse_others();
  return c;
}

void check_length(const char* name, size_t length, const char* what, int64_t expected) {
  if (length == 0 || static_cast<int64_t>(length) == expected) return;
  throw Error(std::string(name) + " has " + std::to_string(length) +
              " entries, expected one for each of the " + std::to_string(expected) + " " + what);
}

}  // namespace

void check_class_names(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (name.size() > kLongestClassName) {
      throw Error("the class name " + in_quotes(name) + " has " + std::to_string(name.size()) +
                  " bytes, expected at most " + std::to_string(kLongestClassName));
    }
    if (!is_utf8(name)) {
      throw Error("the class name " + in_quotes(name) + " is not UTF-8; give it another name");
    }
  }
}

void ModelConfig::validate() const {
  vit.validate();
  if (head() == Head::pixels && vit.classes > kMostPixelClasses) {
    throw Error("classes is " + std::to_string(vit.classes) + ", expected at most " +
                std::to_string(kMostPixelClasses) + " for the task " + task);
  }
  check_encoding(encoding, vit.encoding_shape());
  check_length("class_names", class_names.size(), "classes", vit.classes);
  check_class_names(class_names);
  check_length("mean", mean.size(), "channels", vit.channels);
  check_length("deviation", deviation.size(), "channels", vit.channels);
  if (mean.size() != deviation.size()) {
    throw Error("mean has " + std::to_string(mean.size()) + " entries but deviation has " +
                std::to_string(deviation.size()) + "; give both or neither");
  }
  for (double value : mean) {
    if (!std::isfinite(value)) throw Error("mean holds a number that is not finite");
  }
  for (double value : deviation) {
    if (!std::isfinite(value) || value <= 0) {
      throw Error("deviation holds " + std::to_string(value) + ", expected a number above 0");
    }
  }
}

std::string to_json(const ModelConfig& config) {
  Json json{{"vit", vit_to_json(config.vit)},
            {"encoding", config.encoding.to_string()},
            {"class_names", config.class_names},
            {"mean", config.mean},
            {"deviation", config.deviation}};
  // Only where it is needed: versions that know classifiers alone read theirs as ever.
  if (config.task != kClassification) json["task"] = config.task;
  // Class names of a configuration that was not validated may not be UTF-8.
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

ModelConfig model_config_from_json(std::string_view text) {
  const std::string where = "the model configuration";
  const Json json = parse_json(text, where);
  JsonReader read(json, where);
  ModelConfig config;
  config.vit = vit_from_json(read.at("vit"));
  config.encoding = EncodingSpec::parse(read.text("encoding"));
  config.class_names = read.list<std::string>("class_names", &Json::is_string, "a list of strings");
  config.mean = read.numbers("mean");
  config.deviation = read.numbers("deviation");
  if (json.contains("task")) config.task = read.text("task");
  read.refuse_others();
  config.validate();
  return config;
}

}  // namespace sape2::nn
