#include "sape2/base/error.h"
#include "sape2/nn/vit.h"
#include "sape2/train/task.h"

#include "cli/command.h"
#include "cli/duration_text.h"
#include "cli/program.h"
#include "cli/stop_signal.h"
#include "cli/terminal.h"
#include "cli/threads.h"
#include "cli/together/processes.h"
#include "cli/train/fitted_encoding.h"
#include "cli/train/run_options.h"
#include "cli/train/train_progress.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

namespace sape2::cli {
namespace {

class TrainCommand : public Command {
 public:
  std::string name() const override { return "train"; }
  std::string summary() const override { return "Train a model on a data set"; }

  void declare(CLI::App& app) override {
    app_ = &app;
    options_.declare(app);
    app.add_option("--encoding", encoding_,
                   "Position encoding, e.g. 'sape2-k[gain=-1]+ape' (default: sape2-rel-k)")
        ->type_name("ENCODING")
        ->group("Model");
    app.add_option(
           "--init", init_,
           "Start from the weights of a model file; with --encoding, give it another encoding")
        ->type_name("MODEL")
        ->group("Model");
    app.add_option("--out", out_, "Folder of the run (default: runs/ and a name)")
        ->type_name("RUN");
    app.add_option("--resume", resume_, "Go on with the run in this folder")->type_name("RUN");
    app.add_flag("--restart", restart_,
                 "With --resume: move what the run has so far aside and begin at step 0");
    app.footer(
        "Ctrl-C finishes the step, saves, and tells how to go on. With the same configuration and\n"
        "number of threads, a run on the CPU gives the same weights, interrupted or not. Under\n"
        "torchrun, srun, mpirun or `sape2 launch`, the processes train one model together.\n\n"
        "  sape2 train --data shapes --encoding sape2-rel-k --out runs/first\n"
        "  sape2 train --resume runs/first\n"
        "  sape2 train --data cifar10 --model vit-small --encoding sape2-k+ape --recipe paper\n"
        "  sape2 train --init ape.safetensors --encoding sape2-rel-k+ape --data cifar10 --epochs "
        "5\n"
        "  sape2 train --task segmentation --data oxford-pets --patch-size 8 --recipe "
        "segmentation");
  }

  int run(Terminal& terminal) override {
    const StopSignal stop_signal;
    if (restart_ && resume_.empty()) {
      throw Error("--restart needs the run to begin again: give its folder with --resume");
    }
    Processes processes(*app_, dist::Loss::ends_all);
    return processes.run(
        [&] { return resume_.empty() ? begin(terminal, processes) : go_on(terminal, processes); });
  }

 private:
  int begin(Terminal& terminal, Processes& processes) {
    if (!encoding_.empty()) nn::EncodingSpec::parse(encoding_);  // before data is read
    options_.use_device(processes.device_for(options_.device()));
    options_.start_from(init_);
    train::RunData data = options_.load_data();
    const train::RunConfig config = options_.make_config(data.train, encoding_);
    processes.agree("configuration", train::to_json_of_all(config, data));
    const std::string folder = out_.empty() ? options_.default_folder(config) : out_;
    auto run_folder =
        processes.leads() ? begun(folder, config) : train::RunFolder::kept_elsewhere(config);
    if (processes.leads()) {
      terminal.print(fmt::format(
          "{}: {} training and {} test images, {} classes; {} with {} parameters; run in {}",
          data.train.name, data.train.size(), data.test.size(), data.train.classes(),
          config.model.encoding.to_string(), nn::parameter_count(config.model), folder));
      if (!encoding_.empty()) {
        say_fitted(terminal, nn::EncodingSpec::parse(encoding_), config.model.encoding);
      }
    }
    return train_and_report(terminal, processes, std::move(run_folder), std::move(data), folder);
  }

  // A launcher that starts everything again after a failure means the run that it began.
  static train::RunFolder begun(const std::string& folder, const train::RunConfig& config) {
    if (dist::restarts() == 0) return train::RunFolder::create(folder, config);
    auto found = train::RunFolder::open_or_create(folder, config);
    if (train::fingerprint(found.config()) == train::fingerprint(config)) return found;
    throw Error(folder + " holds a run of another configuration; choose another folder with --out");
  }

  int go_on(Terminal& terminal, Processes& processes) {
    refuse_other_options();
    std::optional<train::RunFolder> folder;
    const std::string shared = processes.from_leader("run", [&] {
      folder = train::RunFolder::open(resume_);
      train::RunConfig config = folder->config();
      config.data = train::absolute_paths(train::data_of_run(config.data, resume_));
      return train::to_json(config);
    });
    const auto config = train::run_config_from_json(shared, resume_);
    if (!folder) folder = train::RunFolder::kept_elsewhere(config);
    if (app_->get_parent()->count("--threads") == 0 && config.threads > 0) {
      use_threads(processes.count() == 1 ? config.threads
                                         : std::min(config.threads, processes.most_threads()));
    }
    if (app_->count("--device") > 0) folder->use_device(options_.device());
    if (processes.count() > 1 && folder->config().device.starts_with("cuda")) {
      folder->use_device(processes.device_for("cuda"));  // rank 0 may have begun on one of its own
    }
    train::RunData data =
        train::load_run_data(config.data, train::task_named(config.model.task).target());
    processes.agree("configuration", train::to_json_of_all(config, data));
    if (restart_ && processes.leads() && dist::restarts() == 0) {
      terminal.print(
          fmt::format("what the run had so far is now in {}", folder->restart().native()));
    }
    return train_and_report(terminal, processes, *std::move(folder), std::move(data), resume_);
  }

  int train_and_report(Terminal& terminal, Processes& processes, train::RunFolder run_folder,
                       train::RunData data, const std::string& folder) {
    dist::Group* group = processes.make_group(run_folder.config().device);
    std::unique_ptr<train::Observer> observer;
    if (processes.leads()) {
      if (group != nullptr) {
        terminal.print(fmt::format("{} processes train together, sums by {}", processes.count(),
                                   group->library() == "nccl" ? "NCCL" : "Gloo"));
      }
      observer = std::make_unique<TrainProgress>();
    } else {
      observer = std::make_unique<train::Observer>();
    }
    const auto summary = train::train_in(std::move(run_folder), std::move(data), *observer,
                                         StopSignal::requested, group);
    observer = nullptr;  // closes its line
    if (processes.leads()) return report(terminal, folder, summary);
    return summary.finished ? kExitSuccess : kExitInterrupted;
  }

  // A run is what its config.json says: only where it runs may change.
  void refuse_other_options() const {
    constexpr std::array kAllowed{"resume", "restart", "device", "help"};
    for (const CLI::Option* option : app_->get_options()) {
      if (option->count() == 0 || option->get_lnames().empty()) continue;
      const std::string& name = option->get_lnames().front();
      if (std::ranges::find(kAllowed, name) != kAllowed.end()) continue;
      throw Error("--resume goes on with the configuration in " + resume_ + "; leave out --" +
                  name + ", or begin a new run");
    }
  }

  int report(Terminal& terminal, const std::string& folder, const train::RunSummary& summary) {
    if (!summary.finished) {
      terminal.print(
          fmt::format("stopped after step {} of {}; go on with `sape2 train --resume {}`",
                      summary.step, summary.steps, folder));
      return kExitInterrupted;
    }
    const auto& last = summary.last;
    const auto& task = train::task_named(train::RunFolder::read_config(folder).model.task);
    terminal.print(
        fmt::format("best {} {:.2f} %, last {:.2f} %, after {} ({:.1f} % of it for checkpoints); "
                    "{}/best.safetensors",
                    task.figures().front().name, 100 * summary.best,
                    last && last->test ? 100 * train::main_figure(last->test->figures) : 0.0,
                    duration_text(summary.seconds), 100 * summary.checkpoint_share, folder));
    return kExitSuccess;
  }

  CLI::App* app_ = nullptr;
  RunOptions options_;
  std::string encoding_;
  std::string init_;
  std::string out_;
  std::string resume_;
  bool restart_ = false;
};

}  // namespace

std::unique_ptr<Command> make_train_command() {
  return std::make_unique<TrainCommand>();
}

}  // namespace sape2::cli
