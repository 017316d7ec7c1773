#include "sape2/train/run_log.h"

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"

#include "nn/json_reader.h"

#include <fstream>

namespace sape2::train {
namespace {

using nn::Json;

StepRecord step_of(nn::JsonReader read) {
  return {.epoch = read.count("epoch"),
          .step = read.count("step"),
          .loss = read.number("loss"),
          .learning_rate = read.number("learning_rate"),
          .gradient_norm = read.number("gradient_norm"),
          .images_per_second = read.number("images_per_second"),
          .seconds = read.number("seconds")};
}

// Whatever the task measures stands behind the loss, before the time.
TestRecord test_of(nn::JsonReader& read, const Json& json) {
  TestRecord test{read.number("test_loss"), {}};
  bool begun = false;
  for (const auto& item : json.items()) {
    if (item.key() == "seconds") break;
    if (begun) {
      test.figures.push_back({item.key(), read.number_between(item.key(), 0, 1, "a share")});
    }
    begun = begun || item.key() == "test_loss";
  }
  return test;
}

EpochRecord epoch_of(nn::JsonReader read, const Json& json) {
  EpochRecord record{.epoch = read.count("epoch"),
                     .step = read.count("step"),
                     .train_loss = read.number("train_loss"),
                     .test = std::nullopt,
                     .seconds = read.number("seconds")};
  if (json.contains("test_loss")) record.test = test_of(read, json);
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
  // A pipe would be waited for without end.
  std::ifstream stream;
  if (std::filesystem::is_regular_file(file, error)) stream.open(file);
  if (!stream.is_open()) throw Error("cannot read the log " + in_quotes(file));
  for (std::string line; std::getline(stream, line);) {
    try {
      const Json json = nn::parse_json(line, "the line");
      nn::JsonReader read(json, "the line");
      const std::string kind = read.text("kind");
      if (kind == "step") history.steps.push_back(step_of(read));
      if (kind == "start") history.start = test_of(read, json);
      if (kind == "epoch") history.epochs.push_back(epoch_of(read, json));
    } catch (const Error&) {
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
