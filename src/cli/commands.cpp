#include "cli/command.h"

// One line a command, in the order of `sape2 --help`.
#define SAPE2_COMMANDS(COMMAND) \
  COMMAND(info)                 \
  COMMAND(data)                 \
  COMMAND(train)                \
  COMMAND(eval)                 \
  COMMAND(predict)              \
  COMMAND(convert)              \
  COMMAND(export)               \
  COMMAND(compare)              \
  COMMAND(launch)               \
  COMMAND(probe)                \
  COMMAND(explain)              \
  COMMAND(serve)                \
  COMMAND(bench)

namespace sape2::cli {

#define SAPE2_DECLARE(name) std::unique_ptr<Command> make_##name##_command();
SAPE2_COMMANDS(SAPE2_DECLARE)
#undef SAPE2_DECLARE

std::vector<std::unique_ptr<Command>> make_commands() {
  std::vector<std::unique_ptr<Command>> commands;
#define SAPE2_MAKE(name) commands.push_back(make_##name##_command());
  SAPE2_COMMANDS(SAPE2_MAKE)
#undef SAPE2_MAKE
  return commands;
}

}  // namespace sape2::cli
