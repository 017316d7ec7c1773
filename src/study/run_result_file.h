#pragma once

#include "sape2/study/comparison.h"

#include <filesystem>
#include <optional>
#include <string>

namespace sape2::study {

/// What a finished run leaves in its folder, result.json. `fingerprint` tells which configuration
/// it belongs to (see train::fingerprint).
void write_result(const std::filesystem::path& file, const RunResult& result,
                  const std::string& fingerprint);

/// Nothing where the file is missing, torn or of another configuration. The epochs are not part of
/// it; they stand in the run's log.
std::optional<RunResult> read_result(const std::filesystem::path& file,
                                     const std::string& fingerprint);

}  // namespace sape2::study
