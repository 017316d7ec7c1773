#pragma once

#include "cli/bench/attention/attention_case.h"
#include "cli/bench/meters/stopwatch.h"

#include <optional>

namespace sape2::cli {

struct Measured {
  double milliseconds = 0;
  double mebibytes = 0;  ///< held beyond inputs and outputs
};

/// One line of the table, measured. The reference is missing where it would not fit into memory or
/// takes too long.
struct AttentionRow {
  AttentionCase wanted;
  int threads = 1;
  Measured fused;
  double plain_milliseconds = 0;
  std::optional<Measured> reference;
};

/// One path alone, in this process.
Measured measure_path(const AttentionCase& wanted, AttentionPath path, const Patience& patience);

/// All three paths: fused and plain by turns in this process; plain once more in a process whose
/// idle threads spin, which suits it better at some sizes (the better time counts); and the
/// reference in a process of its own, which can be ended when it takes too long.
AttentionRow measure_row(const AttentionCase& wanted, int threads, const Patience& patience,
                         bool with_reference);

/// What a process that measures one path prints, and back.
std::string to_json(const Measured& measured);
std::optional<Measured> measured_from_json(const std::string& text);

}  // namespace sape2::cli
