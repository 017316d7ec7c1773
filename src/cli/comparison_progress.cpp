#include "cli/comparison_progress.h"

#include "cli/duration_text.h"

#include <fmt/format.h>

namespace sape2::cli {

void ComparisonProgress::run_begins(const nn::EncodingSpec& encoding, std::uint64_t seed,
                                    std::int64_t number, std::int64_t total, bool reused) {
  reused_ = reused;
  run_.note(fmt::format("[{}/{}] {}, seed {}{}", number, total, encoding.to_string(), seed,
                        reused ? ": trained before" : ""));
}

void ComparisonProgress::run_ended(const nn::EncodingSpec& encoding,
                                   const study::RunResult& result) {
  if (reused_) return;
  run_.note(fmt::format("{}: top-1 {:.2f} % after {}", encoding.to_string(), 100 * result.top1,
                        duration_text(result.seconds)));
}

}  // namespace sape2::cli
