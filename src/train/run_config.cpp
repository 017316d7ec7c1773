#include "sape2/train/run_config.h"

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"
#include "sape2/base/nearest_name.h"
#include "sape2/base/utf8.h"
#include "sape2/train/recipe_fields.h"
#include "sape2/version.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <optional>

namespace sape2::train {
namespace {

using Json = nlohmann::ordered_json;
constexpr int kFormat = 1;
constexpr int kDeepestNesting = 8;

Json json_of(const RecipeValue& value) {
  return std::visit([](const auto& x) { return Json(x); }, value);
}

Json json_of(const Recipe& recipe) {
  Json json;
  for (const RecipeField& field : recipe_fields()) json[field.key] = json_of(field.get(recipe));
  return json;
}

Json json_of(const DataConfig& data) {
  return {{"name", data.name},
          {"root", data.root},
          {"image_size", data.image_size},
          {"train_images", data.train_images},
          {"test_images", data.test_images}};
}

std::optional<RecipeValue> value_of(const Json& json) {
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_unsigned() && json.get<uint64_t>() > INT64_MAX) return std::nullopt;
  if (json.is_number_integer()) return json.get<int64_t>();
  if (json.is_number_float()) return json.get<double>();
  if (json.is_string()) return json.get<std::string>();
  return std::nullopt;
}

class Reader {
 public:
  Reader(const Json& json, std::string where) : json_(json), where_(std::move(where)) {
    if (!json_.is_object()) throw Error(where_ + "expected a JSON object");
  }

  const Json& at(const std::string& key) {
    keys_.push_back(key);
    const auto found = json_.find(key);
    if (found == json_.end()) throw Error(where_ + "the key " + in_quotes(key) + " is missing");
    return *found;
  }

  std::string text(const std::string& key) {
    if (!at(key).is_string()) wrong(key, "a string");
    return json_.at(key).get<std::string>();
  }

  uint64_t natural(const std::string& key) {
    if (!at(key).is_number_unsigned()) wrong(key, "a whole number from 0");
    return json_.at(key).get<uint64_t>();
  }

  int64_t count(const std::string& key) {
    const uint64_t value = natural(key);
    if (value > INT32_MAX) wrong(key, "a smaller number");
    return static_cast<int64_t>(value);
  }

  void refuse_others() const {
    for (const auto& item : json_.items()) {
      if (std::ranges::find(keys_, item.key()) != keys_.end()) continue;
      throw Error(where_ + "the key " + in_quotes(item.key()) + " is not known; " +
                  name_advice(item.key(), keys_));
    }
  }

 private:
  [[noreturn]] void wrong(const std::string& key, const char* expected) const {
    throw Error(fmt::format("{}{} is {}, expected {}", where_, in_quotes(key),
                            in_quotes(json_.at(key).dump(-1, ' ', true)), expected));
  }

  const Json& json_;
  std::string where_;
  std::vector<std::string> keys_;
};

Recipe recipe_from(const Json& json, const std::string& where) {
  if (!json.is_object()) throw Error(where + "expected a JSON object");
  Recipe recipe;
  for (const auto& item : json.items()) {
    const RecipeField& field = recipe_field(item.key(), where);
    const auto value = value_of(item.value());
    if (!value) throw Error(where + field.key + " is not a single value");
    field.set(recipe, *value, where);
  }
  recipe.validate();
  return recipe;
}

DataConfig data_from(const Json& json, const std::string& where) {
  Reader read(json, where);
  DataConfig data;
  data.name = read.text("name");
  data.root = read.text("root");
  data.image_size = read.count("image_size");
  data.train_images = read.count("train_images");
  data.test_images = read.count("test_images");
  read.refuse_others();
  return data;
}

// What the weights depend on. The device and the threads may change from session to session.
Json essence_of(const RunConfig& config) {
  return {{"model", Json::parse(nn::to_json(config.model))},
          {"recipe", json_of(config.recipe)},
          {"data", json_of(config.data)},
          {"seed", config.seed},
          {"init", config.init}};
}

}  // namespace

void RunConfig::validate() const {
  model.validate();
  recipe.validate();
  for (const std::string& name : {data.name, data.root, init}) {
    if (!is_utf8(name)) {
      throw Error(in_quotes(name) + " is not UTF-8, so config.json cannot hold it; rename it");
    }
  }
  if (threads < 0 || threads > kMostThreads) {
    throw Error(fmt::format("threads is {}, expected 0 … {} (0: one for each core)", threads,
                            kMostThreads));
  }
  if (recipe.precision == "bfloat16" && device == "cpu") {
    throw Error("precision is \"bfloat16\", which needs a GPU; use float32 on the CPU");
  }
}

std::string to_json(const RunConfig& config) {
  Json json{{"format", kFormat}, {"version", SAPE2_VERSION}};
  json.update(essence_of(config));
  json["device"] = config.device;
  json["threads"] = config.threads;
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

RunConfig run_config_from_json(std::string_view text, std::string_view source) {
  const std::string where = in_quotes(source) + ": ";
  const auto bounded = [&](int depth, Json::parse_event_t, Json&) {
    if (depth > kDeepestNesting) throw Error(where + "it is nested too deeply");
    return true;
  };
  const Json json = Json::parse(text, bounded, /*allow_exceptions=*/false);
  if (json.is_discarded()) throw Error(where + "it is not valid JSON");
  Reader read(json, where);
  if (const auto format = read.natural("format"); format != kFormat) {
    throw Error(fmt::format("{}format is {}, expected {}: a newer sape2 may be needed", where,
                            format, kFormat));
  }
  read.text("version");
  RunConfig config;
  try {
    config.model = nn::model_config_from_json(read.at("model").dump());
  } catch (const Error& error) {
    throw Error(where + error.what());
  }
  config.recipe = recipe_from(read.at("recipe"), where + "recipe: ");
  config.data = data_from(read.at("data"), where + "data: ");
  config.seed = read.natural("seed");
  config.init = read.text("init");
  config.device = read.text("device");
  config.threads = static_cast<int>(read.count("threads"));
  read.refuse_others();
  try {
    config.validate();
  } catch (const Error& error) {
    throw Error(where + error.what());
  }
  return config;
}

std::string fingerprint(const RunConfig& config) {
  // FNV-1a.
  uint64_t hash = 0xCBF29CE484222325u;
  const std::string text = essence_of(config).dump(-1, ' ', false, Json::error_handler_t::replace);
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  }
  return fmt::format("{:016x}", hash);
}

}  // namespace sape2::train
