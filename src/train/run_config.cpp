#include "sape2/train/run_config.h"

#include "sape2/base/error.h"
#include "sape2/base/hash.h"
#include "sape2/base/in_quotes.h"
#include "sape2/base/utf8.h"
#include "sape2/train/recipe_fields.h"
#include "sape2/train/task.h"
#include "sape2/version.h"

#include "nn/json_reader.h"

#include <fmt/format.h>

#include <optional>

namespace sape2::train {
namespace {

using Json = nlohmann::ordered_json;
constexpr int kFormat = 1;

Json json_of(const RecipeValue& value) {
  return std::visit([](const auto& x) { return Json(x); }, value);
}

Json json_of(const Recipe& recipe) {
  Json json;
  const Recipe defaults;
  for (const RecipeField& field : recipe_fields()) {
    if (field.is_newer && field.get(recipe) == field.get(defaults)) continue;
    json[field.key] = json_of(field.get(recipe));
  }
  return json;
}

Json json_of(const DataConfig& data) {
  Json json{{"name", data.name},
            {"root", data.root},
            {"image_size", data.image_size},
            {"train_images", data.train_images},
            {"test_images", data.test_images}};
  // Only where it is used: runs of older versions, which do not know it, keep their fingerprints.
  if (data.held_out > 0) json["held_out"] = data.held_out;
  return json;
}

std::optional<RecipeValue> value_of(const Json& json) {
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_unsigned() && json.get<uint64_t>() > INT64_MAX) return std::nullopt;
  if (json.is_number_integer()) return json.get<int64_t>();
  if (json.is_number_float()) return json.get<double>();
  if (json.is_string()) return json.get<std::string>();
  return std::nullopt;
}

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
  nn::JsonReader read(json, where);
  DataConfig data;
  data.name = read.text("name");
  data.root = read.text("root");
  data.image_size = read.count("image_size");
  data.train_images = read.count("train_images");
  data.test_images = read.count("test_images");
  if (json.contains("held_out")) data.held_out = read.count("held_out");
  read.refuse_others();
  return data;
}

// What the weights depend on. The device and the threads may change from session to session.
Json essence_of(const RunConfig& config) {
  Json json{{"model", Json::parse(nn::to_json(config.model))},
            {"recipe", json_of(config.recipe)},
            {"data", json_of(config.data)},
            {"seed", config.seed},
            {"init", config.init}};
  // Older runs do not have it.
  if (!config.init_checksum.empty()) json["init_checksum"] = config.init_checksum;
  return json;
}

}  // namespace

void RunConfig::validate() const {
  model.validate();
  recipe.validate();
  task_named(model.task).check(recipe);
  for (const std::string& name : {data.name, data.root, init}) {
    if (!is_utf8(name)) {
      throw Error(in_quotes(name) + " is not UTF-8, so config.json cannot hold it; rename it");
    }
    if (name.find('\0') != std::string::npos) {
      throw Error(in_quotes(name) + " has a zero byte, which no name of a file has");
    }
  }
  // Without the file the run would begin from other weights, without a word.
  if (init.empty() && !init_checksum.empty()) {
    throw Error(
        "init is empty, but init_checksum is there: the run starts from a model file; put the "
        "file's path back, or begin a new run");
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
  const std::string file = in_quotes(source), where = file + ": ";
  const Json json = nn::parse_json(text, file);
  nn::JsonReader read(json, file);
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
  config.data = data_from(read.at("data"), file + "'s \"data\"");
  config.seed = read.natural("seed");
  config.init = read.text("init");
  if (json.contains("init_checksum")) config.init_checksum = read.text("init_checksum");
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
  const std::string text = essence_of(config).dump(-1, ' ', false, Json::error_handler_t::replace);
  return fmt::format("{:016x}", base::fnv1a(text));
}

}  // namespace sape2::train
