#pragma once

#include "cli/info/machine_info.h"
#include "cli/info/model_summary.h"

#include <string>

namespace sape2::cli {

/// What `sape2 info --json` prints: of the machine and the program's offers, of one encoding, of a
/// model file.
std::string info_json(const MachineInfo& machine);
std::string info_json(const nn::EncodingSpec& spec);
std::string info_json(const ModelSummary& model);

}  // namespace sape2::cli
