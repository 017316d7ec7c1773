#include "cli/program.h"

#include "sape2/base/cpu.h"
#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"
#include "sape2/base/nearest_name.h"
#include "sape2/dist/team.h"
#include "sape2/train/run_config.h"
#include "sape2/version.h"

#include "cli/command.h"
#include "cli/terminal.h"
#include "cli/threads.h"
#include "cli/whole_number.h"

#include <CLI/CLI.hpp>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <set>
#include <system_error>

namespace sape2::cli {
namespace {

// A mistake on the command line itself.
class UsageError : public Error {
 public:
  using Error::Error;
};

int report(const std::string& message, int exit_code) {
  // Messages of libraries may span lines; the first says what happened.
  const std::string line = message.substr(0, message.find('\n'));
  std::fflush(stdout);
  std::fprintf(stderr, "sape2: %s\n", printable(line).c_str());
  return exit_code;
}

/// Of the program, the command, and the command's own command, as far as the line names them.
std::vector<std::string> option_names(const CLI::App& app) {
  std::set<std::string> names;
  const auto subcommands = app.get_subcommands();
  if (!subcommands.empty()) {
    for (std::string& name : option_names(*subcommands.front())) names.insert(std::move(name));
  }
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.insert("--" + name);
    for (const std::string& name : option->get_snames()) names.insert("-" + name);
  }
  return {names.begin(), names.end()};
}

std::vector<std::string> command_names(const std::vector<std::unique_ptr<Command>>& commands) {
  std::vector<std::string> names;
  for (const auto& command : commands) names.push_back(command->name());
  return names;
}

// What a shell makes of a variable that is not set would otherwise count as not given at all.
void refuse_empty_values(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    const bool may_lack_one = option->get_items_expected_min() == 0;
    if (may_lack_one || std::ranges::count(option->results(), "") == 0) continue;
    throw UsageError(option->get_name() +
                     " is given, but its value is an empty text; give one, or leave it out");
  }
  for (const CLI::App* command : app.get_subcommands()) refuse_empty_values(*command);
}

class Program {
 public:
  Program();
  int run(int count, char** arguments);

 private:
  void refuse_unknown(const CLI::App* chosen) const;
  int run_command(Command& command);

  CLI::App app_{"SaPE²: semantic-aware position encoding for vision transformers", "sape2"};
  std::vector<std::unique_ptr<Command>> commands_ = make_commands();
  int threads_ = base::usable_cores();
};

Program::Program() {
  app_.set_version_flag("--version", "sape2 " SAPE2_VERSION, "Print the version and leave");
  app_.set_help_flag("-h,--help", "Print this help and leave");
  app_.add_option("--threads", threads_, "Threads to compute with (default: one for each core)")
      ->check(whole_number(1, train::kMostThreads))
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
      ->type_name("N");
  // Options of the program may stand after the command; what is left over is reported below.
  app_.fallthrough();
  app_.require_subcommand(0, 1);  // the name of another command is then an argument of the first
  app_.allow_extras();
  app_.footer(
      "Start with `sape2 info` (this machine, all encodings) and `sape2 predict MODEL IMAGE`;\n"
      "`sape2 COMMAND --help` explains a command. Trained models lie in models/ of the source "
      "tree,\n"
      "once installed in share/sape2/models.");
  for (const auto& command : commands_) {
    command->declare(*app_.add_subcommand(command->name(), command->summary()));
  }
}

void Program::refuse_unknown(const CLI::App* chosen) const {
  const std::vector<std::string> names = command_names(commands_);
  const std::vector<std::string> unknown = app_.remaining(/*recurse=*/true);
  if (!unknown.empty() && unknown.front().starts_with("-")) {
    throw UsageError("option " + in_quotes(unknown.front()) + " is not known; " +
                     name_advice(unknown.front(), option_names(app_)));
  }
  if (chosen == nullptr && !unknown.empty()) {
    throw UsageError("command " + in_quotes(unknown.front()) + " is not known; " +
                     name_advice(unknown.front(), names));
  }
  if (!unknown.empty()) {
    throw UsageError(chosen->get_name() + " has no use for the argument " +
                     in_quotes(unknown.front()));
  }
  if (chosen == nullptr) {
    throw UsageError("no command is given; `sape2 --help` lists the commands");
  }
}

int Program::run_command(Command& command) {
  use_threads(threads_);
  Terminal terminal = Terminal::standard_output();
  const int exit_code = command.run(terminal);
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    throw Error("cannot write to standard output: " + std::generic_category().message(errno));
  }
  return exit_code;
}

int Program::run(int count, char** arguments) {
  try {
    app_.parse(count, arguments);
  } catch (const CLI::Success& request) {
    return app_.exit(request);  // prints the help or the version
  } catch (const CLI::ParseError& error) {
    throw UsageError(error.what());
  }
  const auto chosen = app_.get_subcommands();
  const auto command = std::ranges::find_if(commands_, [&](const auto& one) {
    return !chosen.empty() && one->name() == chosen.front()->get_name();
  });
  const bool known = command != commands_.end();
  if (!known || !(*command)->passes_arguments_on()) {
    refuse_unknown(chosen.empty() ? nullptr : chosen.front());
  }
  refuse_empty_values(app_);
  if (known) return run_command(**command);
  return kExitUsage;
}

}  // namespace
}  // namespace sape2::cli

namespace sape2::cli {
namespace {

int run_program(int count, char** arguments) {
  try {
    return Program().run(count, arguments);
  } catch (const UsageError& error) {
    return report(error.what(), kExitUsage);
  } catch (const Error& error) {
    return report(error.what(), kExitFailure);
  } catch (const c10::Error& error) {
    return report(error.what_without_backtrace(), kExitFailure);
  } catch (const std::filesystem::filesystem_error& error) {
    return report("cannot use " + in_quotes(error.path1()) + ": " + error.code().message(),
                  kExitFailure);
  } catch (const std::bad_alloc&) {
    return report("there is not enough memory", kExitFailure);
  } catch (const std::exception& error) {
    return report(error.what(), kExitFailure);
  }
}

}  // namespace
}  // namespace sape2::cli

extern "C" int sape2_run_program(int count, char** arguments) {
  const int exit_code = sape2::cli::run_program(count, arguments);
  if (!sape2::dist::must_end_at_once()) return exit_code;
  std::fflush(nullptr);
  std::_Exit(exit_code);
}
