#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"

#include "cli/command.h"
#include "cli/program.h"
#include "cli/stop_signal.h"
#include "cli/together/local_ranks.h"
#include "cli/whole_number.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <charconv>
#include <cstdio>

namespace sape2::cli {
namespace {

constexpr long kMostProcesses = 1024;
constexpr long kMostRestarts = 1000;

// At once, among what the processes say.
void say(const std::string& sentence) {
  std::fprintf(stderr, "sape2: %s\n", printable(sentence).c_str());
}

class LaunchCommand : public Command {
 public:
  std::string name() const override { return "launch"; }
  std::string summary() const override {
    return "Run a command in several processes that work together, as torchrun does";
  }
  bool passes_arguments_on() const override { return true; }

  void declare(CLI::App& app) override {
    app_ = &app;
    // Everything from the command on belongs to the command.
    app.fallthrough(false);
    app.prefix_command();
    app.add_option("-n,--processes", processes_, "Processes on this machine")
        ->check(whole_number(1, kMostProcesses))
        ->required()
        ->type_name("N");
    app.add_option("--max-restarts", restarts_,
                   "Times to start all again when one fails; training then goes on from its last "
                   "checkpoint (default: 0)")
        ->check(whole_number(0, kMostRestarts))
        ->type_name("N");
    const std::string machines = "Several machines";
    app.add_option("--machines", machines_,
                   "Machines on which the same command is started (default: 1)")
        ->check(whole_number(1, kMostProcesses))
        ->type_name("N")
        ->group(machines);
    app.add_option("--machine", machine_, "Number of this one, from 0 (default: 0)")
        ->check(whole_number(0, kMostProcesses))
        ->type_name("N")
        ->group(machines);
    app.add_option("--meet", meet_, "Address and a free port of machine 0")
        ->type_name("HOST:PORT")
        ->group(machines);
    app.footer(
        "  sape2 launch -n 4 train --data cifar10 --device cuda --out runs/first\n"
        "  sape2 launch -n 8 --machines 2 --machine 1 --meet node0:29500 train --data …\n"
        "  sape2 launch -n 8 compare --paper table1 --data cifar10 --device cuda --out "
        "runs/table1");
  }

  int run(Terminal&) override {
    const std::vector<std::string> command = app_->remaining();
    if (command.empty()) {
      throw Error("launch needs a command to run, such as `sape2 launch -n 4 train --data …`");
    }
    if (command.front().starts_with("-") || command.front() == "launch") {
      throw Error("launch has no use for " + in_quotes(command.front()) +
                  "; its own options come before the command");
    }
    const StopSignal stop_signal;
    LocalRanks ranks(command, plan());
    for (long attempt = 0;; ++attempt) {
      const LocalRanks::Ending ending = ranks.run(static_cast<int>(attempt));
      if (!ending.sentence.empty()) say(ending.sentence);
      const bool again = ending.exit_code == kExitFailure && attempt < restarts_;
      if (!again || StopSignal::requested()) return ending.exit_code;
      say(fmt::format("starting all processes again ({} of {})", attempt + 1, restarts_));
    }
  }

 private:
  LocalRanks::Plan plan() const {
    LocalRanks::Plan plan{.processes = static_cast<int>(processes_),
                          .machines = static_cast<int>(machines_),
                          .machine = static_cast<int>(machine_)};
    if (machine_ >= machines_) {
      throw Error(fmt::format("--machine is {}, but there are {} (--machines): numbers begin at 0",
                              machine_, machines_));
    }
    if (meet_.empty()) {
      if (machines_ > 1) throw Error("several machines need --meet HOST:PORT, the same on all");
      return plan;
    }
    const std::size_t colon = meet_.rfind(':');
    const std::string port = colon == std::string::npos ? "" : meet_.substr(colon + 1);
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), plan.port);
    const bool whole = error == std::errc() && end == port.data() + port.size();
    if (!whole || plan.port < 1 || plan.port > 65535 || colon == 0) {
      throw Error("--meet is " + in_quotes(meet_) + ", expected HOST:PORT, such as node0:29500");
    }
    plan.address = meet_.substr(0, colon);
    return plan;
  }

  CLI::App* app_ = nullptr;
  long processes_ = 1, machines_ = 1, machine_ = 0, restarts_ = 0;
  std::string meet_;
};

}  // namespace

std::unique_ptr<Command> make_launch_command() {
  return std::make_unique<LaunchCommand>();
}

}  // namespace sape2::cli
