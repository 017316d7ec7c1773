#pragma once

#include "sape2/base/error.h"

#include <cstdint>
#include <string>
#include <vector>

namespace sape2::predict {

/// A mistake on the command line itself.
class UsageError : public Error {
 public:
  using Error::Error;
};

struct CommandLine {
  std::string model;
  std::vector<std::string> images;
  std::int64_t top = 5;
  std::int64_t size = 0;     ///< 0: as trained
  std::int64_t threads = 0;  ///< 0: one for each core
  bool json = false;
  bool help = false;
  bool version = false;
};

/// Reads what follows the program's name. The sentences of UsageError are those of `sape2 predict`.
CommandLine parse_command_line(const std::vector<std::string>& words);

/// What `--help` prints.
extern const char* const kHelp;

}  // namespace sape2::predict
