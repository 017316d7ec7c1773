#include "study/run_result_file.h"

#include "sape2/base/error.h"
#include "sape2/io/atomic_file.h"

#include "io/text_file.h"
#include "nn/json_reader.h"

namespace sape2::study {

using nn::Json;

namespace {
constexpr std::uint64_t kLargestOutcome = 1 << 20;
}

void write_outcome(const std::filesystem::path& file, const RunOutcome& outcome,
                   const std::string& fingerprint) {
  const RunResult& result = outcome.result;
  Json json{{"fingerprint", fingerprint}, {"seed", result.seed}};
  if (outcome.failed()) {
    json["failure"] = outcome.failure;
  } else {
    Json figures = Json::object();
    for (const train::Figure& figure : result.figures) figures[figure.key] = figure.value;
    json.update({{"figures", figures},
                 {"loss", result.loss},
                 {"best", result.best},
                 {"seconds", result.seconds},
                 {"images_per_second", result.images_per_second},
                 {"peak_bytes", result.peak_bytes}});
  }
  io::write_file(file, json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

std::optional<RunOutcome> read_outcome(const std::filesystem::path& file,
                                       const std::string& fingerprint) {
  try {
    const Json json = nn::parse_json(io::read_text_file(file, kLargestOutcome), "it");
    nn::JsonReader read(json, "it");
    if (read.text("fingerprint") != fingerprint) return std::nullopt;
    RunOutcome outcome{.result = {.seed = read.natural("seed")}};
    if (json.contains("failure")) {
      outcome.failure = read.text("failure");
      return outcome;
    }
    const auto share = [&](const char* key) { return read.number_between(key, 0, 1, "a share"); };
    RunResult& result = outcome.result;
    result.loss = read.number("loss");
    if (json.contains("figures")) {
      const Json& figures = read.at("figures");
      nn::JsonReader each(figures, "its figures");
      for (const auto& item : figures.items()) {
        result.figures.push_back({item.key(), each.number_between(item.key(), 0, 1, "a share")});
      }
      result.best = share("best");
    } else {  // of versions that knew classifiers alone
      result.figures = {{"top1", share("top1")}, {"top5", share("top5")}};
      result.best = share("best_top1");
    }
    result.seconds = read.number("seconds");
    result.images_per_second = read.number("images_per_second");
    result.peak_bytes = read.integer("peak_bytes");
    return outcome;
  } catch (const Error&) {
    return std::nullopt;  // the run itself has what it says
  }
}

}  // namespace sape2::study
