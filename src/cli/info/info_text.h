#pragma once

#include "cli/info/machine_info.h"
#include "cli/info/model_summary.h"
#include "cli/terminal.h"

namespace sape2::cli {

/// What `sape2 info` prints: the machine, what the program offers, one encoding with its options, a
/// model file.
void print_machine(const Terminal& terminal, const MachineInfo& machine);
void print_offers(const Terminal& terminal);
void print_encoding(const Terminal& terminal, const nn::EncodingSpec& spec);
void print_model(const Terminal& terminal, const ModelSummary& model);

}  // namespace sape2::cli
