#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"
#include "sape2/study/comparison.h"
#include "sape2/study/comparison_merge.h"
#include "sape2/study/comparison_report.h"

#include "cli/command.h"
#include "cli/info/cuda_devices.h"
#include "cli/output_file.h"
#include "cli/program.h"
#include "cli/stop_signal.h"
#include "cli/study/companions.h"
#include "cli/study/comparison_progress.h"
#include "cli/study/comparison_text.h"
#include "cli/terminal.h"
#include "cli/threads.h"
#include "cli/together/processes.h"
#include "cli/train/fitted_encoding.h"
#include "cli/train/run_options.h"
#include "cli/whole_number.h"
#include "io/text_file.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

namespace sape2::cli {
namespace {

constexpr long kMostSeeds = 1000;
constexpr long kMostJobs = 256;
constexpr long kMostTuneEpochs = 1'000'000;
constexpr std::uint64_t kLargestResults = std::uint64_t{1} << 30;
constexpr const char* kEveryGpu = "cuda";  // of --device: whichever is free

// A results.json, or the folder of a comparison.
study::NamedComparison read_results(const std::string& path) {
  std::error_code error;
  const std::string file = std::filesystem::is_directory(path, error)
                               ? (std::filesystem::path(path) / "results.json").native()
                               : path;
  return {file, study::comparison_from_json(io::read_text_file(file, kLargestResults), file)};
}

void make_out_folder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw Error("cannot make the folder " + in_quotes(folder) + ": " + error.message());
}

class CompareCommand : public Command {
 public:
  std::string name() const override { return "compare"; }
  std::string summary() const override {
    return "Train several encodings under one recipe and put them in one table";
  }

  void declare(CLI::App& app) override {
    app_ = &app;
    // A flag that is repeated counts as it was written last, as scripts expect.
    app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    const std::vector<CLI::Option*> reports_only = declare_rows(app);
    app.add_option("-o,--out", out_, "Folder of the runs and the reports")
        ->type_name("DIR")
        ->required();
    app.add_option("--baseline", baseline_,
                   "One of the encodings: differences to it seed by seed, with 95 % intervals")
        ->type_name("ENCODING");
    declare_runs(app);
    declare_tuning(app);
    options_.prefer("vit-small", "quick");
    options_.declare(app);
    app.add_option("--init", init_, "Start every run from the weights of this model file")
        ->type_name("MODEL")
        ->group("Model");
    // A report of what is trained already has no use for the others.
    for (CLI::Option* option : app.get_options()) {
      const bool of_reports = option->check_lname("out") || option->check_lname("help") ||
                              option->check_lname("baseline");
      if (of_reports) continue;
      for (CLI::Option* report : reports_only) report->excludes(option);
    }
    app.footer(
        "The same command goes on where it was cut off: finished runs are taken as they are. It\n"
        "may run several times at once in one folder, too. Under torchrun, srun, mpirun or `sape2\n"
        "launch`, the processes share the runs out, on machines with or without a common disk.\n\n"
        "  sape2 compare --encodings 'ape,rope2d,sape2-rel-k[gates=open]' --data cifar10 \\\n"
        "    --seeds 5 --baseline ape --out runs/three\n"
        "  sape2 compare --paper table1 --data cifar10 --device cuda --out runs/table1 \\\n"
        "    --tune learning-rate=1e-3,5e-4,3e-4 --tune-epochs 15\n"
        "  sape2 compare --init ape.safetensors --encodings 'ape,sape2-rel-k+ape' --data cifar10 "
        "\\\n"
        "    --epochs 5 --baseline ape --out runs/retrofit\n"
        "  sape2 compare --family --data shapes --model vit-micro --out runs/family\n"
        "  sape2 compare --merge runs/one runs/other --baseline ape --out runs/both\n"
        "  sape2 compare --from results/encodings/cifar10.json --out runs/published");
  }

  int run(Terminal& terminal) override {
    if (!from_.empty()) return report_again(terminal, read_results(from_).comparison);
    if (!merged_.empty()) return report_again(terminal, read_merged());
    options_.start_from(init_);
    const std::vector<study::ComparisonRow> rows = fitted(terminal, make_rows());
    const auto tuning = make_tuning();
    Processes processes(*app_, dist::Loss::tolerated);
    return processes.run([&] { return compare(terminal, processes, rows, tuning); });
  }

 private:
  int compare(Terminal& terminal, Processes& processes,
              const std::vector<study::ComparisonRow>& rows,
              const std::optional<study::TuningPlan>& tuning) {
    const bool several = processes.count() > 1;
    if (several && (jobs_ > 0 || restart_)) {
      throw Error(fmt::format("{} is for one process, but a launcher started {}; leave it out",
                              jobs_ > 0 ? "--jobs" : "--restart", processes.count()));
    }
    if (several) options_.use_device(processes.device_for(options_.device()));
    const data::Dataset training = options_.load_training_images();
    const StopSignal stop_signal;
    if (parent_ > 0) end_with(static_cast<pid_t>(parent_));
    const int jobs = several ? 1 : number_of_jobs();
    use_threads(std::max(1, threads_in_use() / jobs));
    study::ComparisonPlan plan = make_plan(rows, training, tuning);
    plan.device = device_of_job(0);
    Companions companions;
    if (jobs > 1) start_companions(companions, jobs);
    std::unique_ptr<study::ComparisonObserver> progress;
    if (processes.leads()) {
      progress = std::make_unique<ComparisonProgress>();
    } else {
      progress = std::make_unique<study::ComparisonObserver>();
    }
    const auto comparison = study::run_comparison(plan, training, out_, *progress,
                                                  StopSignal::requested, processes.team());
    progress = nullptr;  // closes its line
    if (comparison.finished) {
      for (const std::string& sentence : companions.wait()) terminal.warning(sentence);
    }
    if (parent_ == 0 && processes.leads()) print_comparison(terminal, comparison, out_);
    if (comparison.finished) return kExitSuccess;
    if (processes.leads()) terminal.print("stopped; the same command goes on from here");
    return kExitInterrupted;
  }

  // Returns the options that ask for reports of what is trained already.
  std::vector<CLI::Option*> declare_rows(CLI::App& app) {
    auto* rows = app.add_option_group("Rows", "What to compare: one of these");
    rows->add_option("--encodings", encodings_, "Encodings, e.g. 'ape,sape2-k[gain=-1]+ape'")
        ->type_name("LIST");
    rows->add_option(
            "--paper", paper_,
            "The paper's table1 or table2, its figures beside ours (default recipe: paper)")
        ->check(CLI::IsMember({"table1", "table2"}))
        ->type_name("TABLE");
    rows->add_flag("--family", family_,
                   "From sape2-k to sape2-rel-k, one option a step, and the open-gate control");
    CLI::Option* from =
        rows->add_option("--from", from_,
                         "A results.json: write its table and report anew, and train nothing")
            ->type_name("FILE");
    CLI::Option* merge =
        rows->add_option("--merge", merged_,
                         "Two or more results.json, or their folders: put them in one table")
            ->expected(2, -1)
            ->type_name("FILES");
    rows->require_option(1);
    return {from, merge};
  }

  void declare_runs(CLI::App& app) {
    app.add_option("--seeds", seeds_, "Runs of each encoding: --seed, --seed + 1, … (default: 1)")
        ->check(whole_number(1, kMostSeeds))
        ->type_name("N");
    app.add_option("--jobs", jobs_,
                   "Runs at once, in processes that share the threads; with --device cuda spread "
                   "over the GPUs (default: 1, with --device cuda one a GPU)")
        ->check(whole_number(1, kMostJobs))
        ->type_name("N");
    app.add_flag("--restart", restart_,
                 "Begin runs anew that diverged, or whose checkpoints are gone or refused; their "
                 "files are kept aside");
    app.add_option("--worker-of", parent_, "")->group("");  // what --jobs starts
  }

  void declare_tuning(CLI::App& app) {
    CLI::Option* tune =
        app.add_option("--tune", tune_,
                       "Try these values of the recipe for every encoding, on images held out of "
                       "the training images, and train with the best: learning-rate=1e-3,5e-4; "
                       "repeat it for a grid")
            ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
            ->expected(1)
            ->type_name("KEY=LIST")
            ->group("Tuning");
    CLI::Option* epochs = app.add_option("--tune-epochs", tune_epochs_, "Epochs of each trial")
                              ->check(whole_number(1, kMostTuneEpochs))
                              ->type_name("N")
                              ->group("Tuning");
    tune->needs(epochs);
    epochs->needs(tune);
  }

  study::Comparison read_merged() const {
    if (merged_.size() < 2) {
      throw Error("--merge needs two or more results.json, or folders that hold one");
    }
    std::vector<study::NamedComparison> parts;
    std::vector<std::filesystem::path> read;
    for (const std::string& path : merged_) {
      parts.push_back(read_results(path));
      read.emplace_back(parts.back().name);
    }
    refuse_to_overwrite(std::filesystem::path(out_) / "results.json", read);
    return study::merge_comparisons(parts);
  }

  int report_again(const Terminal& terminal, study::Comparison comparison) const {
    if (!baseline_.empty()) comparison.plan.baseline = baseline_among(comparison.plan.rows);
    make_out_folder(out_);
    study::write_reports(comparison, out_);
    print_comparison(terminal, comparison, out_);
    return kExitSuccess;
  }

  std::vector<study::ComparisonRow> make_rows() {
    if (family_) return study::family_rows();
    if (paper_.empty()) return study::listed_rows(encodings_);
    options_.prefer("vit-small", "paper");
    return study::paper_rows(paper_, options_.data());
  }

  // What a trained model gets, row by row.
  std::vector<study::ComparisonRow> fitted(const Terminal& terminal,
                                           const std::vector<study::ComparisonRow>& asked) const {
    std::vector<study::ComparisonRow> rows;
    for (study::ComparisonRow row : asked) {
      row.encoding = options_.fitted(row.encoding);
      if (std::ranges::find(rows, row.encoding, &study::ComparisonRow::encoding) != rows.end()) {
        throw Error("two rows are " + row.encoding.to_string() +
                    " once they are added to the trained model; leave one of them out");
      }
      rows.push_back(std::move(row));
    }
    for (std::size_t i = 0; i < rows.size() && parent_ == 0; ++i) {
      say_fitted(terminal, asked[i].encoding, rows[i].encoding);
    }
    return rows;
  }

  nn::EncodingSpec baseline_among(const std::vector<study::ComparisonRow>& rows) const {
    const auto baseline = options_.fitted(nn::EncodingSpec::parse(baseline_));
    if (std::ranges::find(rows, baseline, &study::ComparisonRow::encoding) != rows.end()) {
      return baseline;
    }
    std::string names;
    for (const auto& row : rows) {
      names += (names.empty() ? "" : ", ") + row.encoding.to_string();
    }
    throw Error(fmt::format("the baseline {} is none of the encodings compared; they are {}",
                            in_quotes(baseline.to_string()), names));
  }

  std::optional<study::TuningPlan> make_tuning() const {
    if (tune_.empty()) return std::nullopt;
    study::TuningPlan tuning{.epochs = tune_epochs_};
    for (const std::string& text : tune_) {
      tuning.axes.push_back(study::parse_tuning_axis(text));
      const auto& key = tuning.axes.back().key;
      if (std::ranges::count(tuning.axes, key, &study::TuningAxis::key) > 1) {
        throw Error("--tune has " + key + " twice; give all its values at once");
      }
    }
    return tuning;
  }

  study::ComparisonPlan make_plan(const std::vector<study::ComparisonRow>& rows,
                                  const data::Dataset& training,
                                  const std::optional<study::TuningPlan>& tuning) const {
    study::ComparisonPlan plan;
    plan.rows = rows;
    plan.common = options_.make_config(training, rows.front().encoding.to_string());
    plan.seeds = study::seeds_from(options_.seed(), seeds_);
    plan.recipe = options_.recipe();
    plan.model = options_.model_name();
    plan.restart = restart_;
    plan.tuning = tuning;
    if (plan.tuning) plan.tuning->held_out = study::held_out_images(training.size());
    if (!baseline_.empty()) plan.baseline = baseline_among(rows);
    return plan;
  }

  // What is begun anew must not be taken for finished by others meanwhile.
  int number_of_jobs() const {
    if (restart_) return 1;
    if (jobs_ > 0) return static_cast<int>(jobs_);
    const bool every_gpu = options_.device() == kEveryGpu;
    return every_gpu ? std::max(1, static_cast<int>(find_cuda_devices().size())) : 1;
  }

  std::string device_of_job(int job) const {
    if (options_.device() != kEveryGpu) return options_.device();
    const auto gpus = std::max<std::size_t>(1, find_cuda_devices().size());
    return fmt::format("cuda:{}", static_cast<std::size_t>(job) % gpus);
  }

  void start_companions(Companions& companions, int jobs) const {
    make_out_folder(out_);
    for (int job = 1; job < jobs; ++job) {
      companions.start(
          {"--jobs", "1", "--device", device_of_job(job), "--threads",
           std::to_string(threads_in_use()), "--worker-of", std::to_string(::getpid())},
          std::filesystem::path(out_) / fmt::format("process-{}.log", job + 1));
    }
  }

  CLI::App* app_ = nullptr;
  std::string encodings_, paper_, from_, baseline_, init_;
  std::vector<std::string> merged_, tune_;
  bool family_ = false, restart_ = false;
  RunOptions options_;
  std::string out_;
  std::int64_t seeds_ = 1, jobs_ = 0, tune_epochs_ = 0, parent_ = 0;
};

}  // namespace

std::unique_ptr<Command> make_compare_command() {
  return std::make_unique<CompareCommand>();
}

}  // namespace sape2::cli
