#pragma once

#include <memory>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace sape2::cli {

class Terminal;

/// One command of the program. A new one is a file `<name>_command.cpp` that defines
/// `make_<name>_command()`, and one line in commands.cpp.
class Command {
 public:
  virtual ~Command() = default;

  virtual std::string name() const = 0;
  /// One line for `sape2 --help`.
  virtual std::string summary() const = 0;
  /// Declares the command's arguments and options; the variables they fill are its members.
  virtual void declare(CLI::App& app) = 0;
  /// Whether arguments that it did not declare are for somebody else.
  virtual bool passes_arguments_on() const { return false; }
  /// Does the work once arguments are read. Throws Error with one sentence for a user's mistake;
  /// returns the exit code.
  virtual int run(Terminal& terminal) = 0;
};

/// Every command, in the order of `sape2 --help`.
std::vector<std::unique_ptr<Command>> make_commands();

}  // namespace sape2::cli
