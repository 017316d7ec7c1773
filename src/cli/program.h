#pragma once

namespace sape2::cli {

inline constexpr int kExitSuccess = 0;
inline constexpr int kExitFailure = 1;        ///< the work could not be done
inline constexpr int kExitUsage = 2;          ///< the command line makes no sense
inline constexpr int kExitInterrupted = 130;  ///< stopped by Ctrl-C, as a shell reports it

}  // namespace sape2::cli

/// Reads the command line, runs the command and returns the exit code. Whatever goes wrong is one
/// sentence on standard error, `sape2: …`.
extern "C" int sape2_run_program(int count, char** arguments);
