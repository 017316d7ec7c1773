#pragma once

#include "sape2/study/comparison.h"

#include <filesystem>
#include <optional>
#include <string>

namespace sape2::study {

/// How a run ended.
struct RunOutcome {
  RunResult result;          ///< the seed alone if it failed
  std::string failure = {};  ///< why it has no result; empty: it has one

  bool failed() const { return !failure.empty(); }
};

/// What a run leaves in its folder when it has ended, result.json. `fingerprint` tells which
/// configuration it belongs to (see train::fingerprint).
void write_outcome(const std::filesystem::path& file, const RunOutcome& outcome,
                   const std::string& fingerprint);

/// Nothing where the file is missing, torn or of another configuration. The epochs are not part of
/// it; they stand in the run's log.
std::optional<RunOutcome> read_outcome(const std::filesystem::path& file,
                                       const std::string& fingerprint);

}  // namespace sape2::study
