#include "study/run_result_file.h"

#include "sape2/io/atomic_file.h"

#include <nlohmann/json.hpp>

#include <fstream>

namespace sape2::study {

using Json = nlohmann::ordered_json;

void write_result(const std::filesystem::path& file, const RunResult& result,
                  const std::string& fingerprint) {
  const Json json{{"fingerprint", fingerprint},
                  {"seed", result.seed},
                  {"top1", result.top1},
                  {"top5", result.top5},
                  {"loss", result.loss},
                  {"best_top1", result.best_top1},
                  {"seconds", result.seconds},
                  {"images_per_second", result.images_per_second},
                  {"peak_bytes", result.peak_bytes}};
  io::AtomicFile out(file);
  out.write(json.dump(2) + "\n");
  out.commit();
}

std::optional<RunResult> read_result(const std::filesystem::path& file,
                                     const std::string& fingerprint) {
  std::ifstream stream(file);
  if (!stream) return std::nullopt;
  const Json json = Json::parse(stream, nullptr, /*allow_exceptions=*/false);
  try {
    if (json.at("fingerprint").get<std::string>() != fingerprint) return std::nullopt;
    return RunResult{.seed = json.at("seed"),
                     .top1 = json.at("top1"),
                     .top5 = json.at("top5"),
                     .loss = json.at("loss"),
                     .best_top1 = json.at("best_top1"),
                     .seconds = json.at("seconds"),
                     .images_per_second = json.at("images_per_second"),
                     .peak_bytes = json.at("peak_bytes")};
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

}  // namespace sape2::study
