#include "sape2/train/run_log.h"

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"

#include <nlohmann/json.hpp>

#include <fstream>

namespace sape2::train {
namespace {

using Json = nlohmann::ordered_json;

StepRecord step_of(const Json& json) {
  return {.epoch = json.at("epoch"),
          .step = json.at("step"),
          .loss = json.at("loss"),
          .learning_rate = json.at("learning_rate"),
          .gradient_norm = json.at("gradient_norm"),
          .images_per_second = json.at("images_per_second"),
          .seconds = json.at("seconds")};
}

TestRecord test_of(const Json& json) {
  TestRecord test{json.at("test_loss"), {}};
  // Whatever the task measures stands behind the loss, before the time.
  bool begun = false;
  for (const auto& [key, value] : json.items()) {
    if (key == "seconds") break;
    if (begun) test.figures.push_back({key, value.get<double>()});
    begun = begun || key == "test_loss";
  }
  return test;
}

EpochRecord epoch_of(const Json& json) {
  EpochRecord record{.epoch = json.at("epoch"),
                     .step = json.at("step"),
                     .train_loss = json.at("train_loss"),
                     .test = std::nullopt,
                     .seconds = json.at("seconds")};
  if (json.contains("test_loss")) record.test = test_of(json);
  return record;
}

void add_test(Json& json, const TestRecord& test) {
  json["test_loss"] = test.loss;
  for (const Figure& figure : test.figures) json[figure.key] = figure.value;
}

}  // namespace

RunHistory read_log(const std::filesystem::path& file) {
  RunHistory history;
  std::error_code error;
  if (!std::filesystem::exists(std::filesystem::symlink_status(file, error))) return history;
  std::ifstream stream(file);
  if (!stream) throw Error("cannot read the log " + in_quotes(file));
  for (std::string line; std::getline(stream, line);) {
    const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object()) continue;
    try {
      const auto kind = json.at("kind").get<std::string>();
      if (kind == "step") history.steps.push_back(step_of(json));
      if (kind == "start") history.start = test_of(json);
      if (kind == "epoch") history.epochs.push_back(epoch_of(json));
    } catch (const Json::exception&) {
      continue;  // not a line of ours
    }
  }
  return history;
}

std::string to_json_line(const StepRecord& record) {
  const Json json{{"kind", "step"},
                  {"epoch", record.epoch},
                  {"step", record.step},
                  {"loss", record.loss},
                  {"learning_rate", record.learning_rate},
                  {"gradient_norm", record.gradient_norm},
                  {"images_per_second", record.images_per_second},
                  {"seconds", record.seconds}};
  return json.dump() + "\n";
}

std::string to_json_line(const EpochRecord& record) {
  Json json{{"kind", "epoch"},
            {"epoch", record.epoch},
            {"step", record.step},
            {"train_loss", record.train_loss}};
  if (record.test) add_test(json, *record.test);
  json["seconds"] = record.seconds;
  return json.dump() + "\n";
}

std::string to_json_line(const TestRecord& start) {
  Json json{{"kind", "start"}, {"epoch", 0}, {"step", 0}};
  add_test(json, start);
  return json.dump() + "\n";
}

}  // namespace sape2::train
