#include "study/run_result_file.h"

#include "sape2/io/atomic_file.h"

#include <nlohmann/json.hpp>

#include <fstream>

namespace sape2::study {

using Json = nlohmann::ordered_json;

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
  io::AtomicFile out(file);
  out.write(json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  out.commit();
}

std::optional<RunOutcome> read_outcome(const std::filesystem::path& file,
                                       const std::string& fingerprint) {
  std::ifstream stream(file);
  if (!stream) return std::nullopt;
  const Json json = Json::parse(stream, nullptr, /*allow_exceptions=*/false);
  try {
    if (json.at("fingerprint").get<std::string>() != fingerprint) return std::nullopt;
    RunOutcome outcome{.result = {.seed = json.at("seed")}};
    if (json.contains("failure")) {
      outcome.failure = json.at("failure");
      return outcome;
    }
    RunResult& result = outcome.result;
    result.loss = json.at("loss");
    if (json.contains("figures")) {
      for (const auto& [key, value] : json.at("figures").items()) {
        result.figures.push_back({key, value.get<double>()});
      }
      result.best = json.at("best");
    } else {  // of versions that knew classifiers alone
      result.figures = {{"top1", json.at("top1")}, {"top5", json.at("top5")}};
      result.best = json.at("best_top1");
    }
    result.seconds = json.at("seconds");
    result.images_per_second = json.at("images_per_second");
    result.peak_bytes = json.at("peak_bytes");
    return outcome;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

}  // namespace sape2::study
