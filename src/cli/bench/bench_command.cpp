#include "sape2/base/error.h"

#include "cli/bench/benchmarks.h"
#include "cli/program.h"

#include <CLI/CLI.hpp>

namespace sape2::cli {

namespace {

class BenchCommand : public Command {
 public:
  std::string name() const override { return "bench"; }
  std::string summary() const override { return "Measure speed and memory on this machine"; }

  void declare(CLI::App& app) override {
    benchmarks_.push_back(make_attention_benchmark());
    benchmarks_.push_back(make_exchange_benchmark());
    benchmarks_.push_back(make_infer_benchmark());
    benchmarks_.push_back(make_train_benchmark());
    for (const auto& benchmark : benchmarks_) {
      CLI::App* child = app.add_subcommand(benchmark->name(), benchmark->summary());
      benchmark->declare(*child);
      apps_.push_back(child);
    }
  }

  int run(Terminal& terminal) override {
    for (std::size_t index = 0; index < apps_.size(); ++index)
      if (apps_[index]->parsed()) return benchmarks_[index]->run(terminal);
    throw Error("bench needs to be told what to measure: " + names());
  }

 private:
  std::string names() const {
    std::string list;
    for (const auto& benchmark : benchmarks_)
      list += (list.empty() ? "" : ", ") + ("sape2 bench " + benchmark->name());
    return list;
  }

  std::vector<std::unique_ptr<Command>> benchmarks_;
  std::vector<CLI::App*> apps_;
};

}  // namespace

std::unique_ptr<Command> make_bench_command() {
  return std::make_unique<BenchCommand>();
}

}  // namespace sape2::cli
