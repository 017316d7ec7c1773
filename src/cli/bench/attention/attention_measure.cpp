#include "cli/bench/attention/attention_measure.h"

#include "cli/bench/attention/child_process.h"
#include "cli/bench/meters/memory_meter.h"

#include <nlohmann/json.hpp>

#include <fstream>

namespace sape2::cli {
namespace {

constexpr std::chrono::seconds kReferenceLimit{20};
constexpr std::chrono::seconds kStartLimit{10};  // for loading the program itself
constexpr double kBytesPerMebibyte = 1 << 20;
// A run this slow is measured once: its own noise is small, and patience has an end.
constexpr double kSlowMilliseconds = 2000;

double available_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string name, unit;
  double kibibytes = 0;
  while (file >> name >> kibibytes && std::getline(file, unit)) {
    if (name == "MemAvailable:") return kibibytes * 1024;
  }
  return 1e18;  // unknown: let it try
}

std::vector<std::string> arguments_for(const AttentionCase& wanted, const char* path, int threads,
                                       const Patience& patience) {
  return {"bench",         "attention",
          "--measure",     path,
          "--shapes",      wanted.shape.to_string(),
          "--head-size",   std::to_string(wanted.head_size),
          "--dtypes",      wanted.dtype,
          "--passes",      wanted.pass(),
          "--encodings",   wanted.encoding.to_string(),
          "--threads",     std::to_string(threads),
          "--repetitions", std::to_string(patience.rounds),
          "--seconds",     std::to_string(patience.milliseconds / 1000)};
}

std::optional<Measured> measured_elsewhere(const AttentionCase& wanted, const char* path,
                                           int threads, const Patience& patience,
                                           const char* wait_policy) {
  const auto output = output_of_self(arguments_for(wanted, path, threads, patience),
                                     "OMP_WAIT_POLICY", wait_policy, kReferenceLimit + kStartLimit);
  return output ? measured_from_json(*output) : std::nullopt;
}

}  // namespace

Measured measure_path(const AttentionCase& wanted, AttentionPath path, const Patience& patience) {
  AttentionRunner runner(wanted);
  const auto work = [&] { runner.run(path); };
  Measured result;
  double first = 0;
  result.mebibytes = static_cast<double>(peak_extra_bytes([&] { first = milliseconds_of(work); })) /
                     kBytesPerMebibyte;
  result.milliseconds = first > kSlowMilliseconds ? first : least_milliseconds({work}, patience)[0];
  return result;
}

AttentionRow measure_row(const AttentionCase& wanted, int threads, const Patience& patience,
                         bool with_reference) {
  AttentionRow row{.wanted = wanted, .threads = threads};
  {
    AttentionRunner runner(wanted);
    const auto fused = [&] { runner.run(AttentionPath::fused); };
    const auto plain = [&] { runner.run(AttentionPath::plain); };
    row.fused.mebibytes = static_cast<double>(peak_extra_bytes(fused)) / kBytesPerMebibyte;
    const auto times = least_milliseconds({fused, plain}, patience);
    row.fused.milliseconds = times[0];
    row.plain_milliseconds = times[1];
  }
  if (const auto spinning = measured_elsewhere(wanted, "plain", threads, patience, "ACTIVE")) {
    row.plain_milliseconds = std::min(row.plain_milliseconds, spinning->milliseconds);
  }
  if (with_reference && wanted.reference_bytes() < 0.8 * available_bytes()) {
    row.reference = measured_elsewhere(wanted, "reference", threads, patience, "PASSIVE");
    const double limit = std::chrono::duration<double, std::milli>(kReferenceLimit).count();
    if (row.reference && row.reference->milliseconds > limit) row.reference.reset();
  }
  return row;
}

std::string to_json(const Measured& measured) {
  return nlohmann::json{{"ms", measured.milliseconds}, {"mib", measured.mebibytes}}.dump();
}

std::optional<Measured> measured_from_json(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("ms") || !json.contains("mib")) return std::nullopt;
  return Measured{json["ms"].get<double>(), json["mib"].get<double>()};
}

}  // namespace sape2::cli
