#pragma once

#include <map>
#include <string>
#include <vector>

namespace sape2::cli::test {

using Arguments = std::vector<std::string>;

/// Arguments, and more behind them.
Arguments with(Arguments arguments, const Arguments& more);

/// What a run of the program left behind.
struct Outcome {
  int exit_code = -1;  ///< 128 + signal where it was killed
  std::string out;
  std::string err;
};

/// Variables to set; an empty value takes a variable away.
using Environment = std::map<std::string, std::string>;

/// Runs the program as a process of its own, in this environment but for `variables`.
Outcome run_sape2(const Arguments& arguments, const Environment& variables = {});

/// The same with another program, by its path.
Outcome run_program(const char* program, const Arguments& arguments,
                    const Environment& variables = {});

/// Whether this system gives pseudo-terminals; some containers have none.
bool has_terminals();

/// The same with standard output on a terminal; `out` is what the terminal receives.
Outcome run_sape2_on_terminal(const Arguments& arguments, const Environment& variables = {});

/// Checks that a run failed as a user's mistake should: nothing on standard output, one line
/// `sape2: …` on standard error.
void expect_mistake(const Outcome& outcome, int exit_code, const std::string& part);

}  // namespace sape2::cli::test
