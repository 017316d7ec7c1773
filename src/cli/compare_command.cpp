#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"
#include "sape2/study/comparison.h"
#include "sape2/study/comparison_report.h"

#include "cli/command.h"
#include "cli/comparison_progress.h"
#include "cli/program.h"
#include "cli/run_options.h"
#include "cli/stop_signal.h"
#include "cli/terminal.h"
#include "cli/whole_number.h"

#include <CLI/CLI.hpp>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

namespace sape2::cli {
namespace {

constexpr long kMostSeeds = 1000;

std::string read_text(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) {
    throw Error("cannot read " + in_quotes(path) + ": " +
                (errno == 0 ? "it is empty" : std::generic_category().message(errno)));
  }
  return std::move(text).str();
}

class CompareCommand : public Command {
 public:
  std::string name() const override { return "compare"; }
  std::string summary() const override {
    return "Train several encodings under one recipe and put them in one table";
  }

  void declare(CLI::App& app) override {
    CLI::Option* from = declare_rows(app);
    app.add_option("--seeds", seeds_, "Runs of each encoding: --seed, --seed + 1, … (default: 1)")
        ->check(whole_number(1, kMostSeeds))
        ->type_name("N");
    app.add_option("--out", out_, "Folder of the runs and the reports")
        ->type_name("DIR")
        ->required();
    app.add_flag(
        "--restart", restart_,
        "Begin runs anew whose checkpoints are gone or refused; their files are kept aside");
    options_.prefer("vit-small", "quick");
    options_.declare(app);
    // A report of what is trained already has no use for them.
    for (CLI::Option* option : app.get_options()) {
      if (!option->check_lname("out") && !option->check_lname("help")) from->excludes(option);
    }
    app.footer(
        "The same command goes on where it was cut off: finished runs are taken as they are.\n\n"
        "  sape2 compare --encodings 'ape,rope2d,sape2-rel-k[gates=open]' --data cifar10 \\\n"
        "    --seeds 3 --out runs/three\n"
        "  sape2 compare --paper table1 --data cifar10 --device cuda --out runs/table1\n"
        "  sape2 compare --family --data shapes --model vit-micro --out runs/family\n"
        "  sape2 compare --from results/encodings/cifar10.json --out runs/published");
  }

  int run(Terminal& terminal) override {
    if (!from_.empty()) return report_again(terminal);
    const std::vector<study::ComparisonRow> rows = make_rows();
    const train::RunData data = options_.load_data();
    const StopSignal stop_signal;
    ComparisonProgress progress;
    const auto comparison =
        study::run_comparison(make_plan(rows, data), data, out_, progress, StopSignal::requested);
    print_table(terminal, comparison);
    if (comparison.finished) return kExitSuccess;
    terminal.print("stopped; the same command goes on from here");
    return kExitInterrupted;
  }

 private:
  CLI::Option* declare_rows(CLI::App& app) {
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
    rows->require_option(1);
    return from;
  }

  int report_again(const Terminal& terminal) const {
    const study::Comparison comparison =
        study::comparison_from_json(read_text(from_), in_quotes(from_));
    std::error_code error;
    std::filesystem::create_directories(out_, error);
    if (error) {
      throw Error("cannot make the folder " + in_quotes(out_) + ": " + error.message());
    }
    study::write_reports(comparison, out_);
    print_table(terminal, comparison);
    return kExitSuccess;
  }

  std::vector<study::ComparisonRow> make_rows() {
    if (family_) return study::family_rows();
    if (paper_.empty()) return study::listed_rows(encodings_);
    options_.prefer("vit-small", "paper");
    return study::paper_rows(paper_, options_.data());
  }

  study::ComparisonPlan make_plan(const std::vector<study::ComparisonRow>& rows,
                                  const train::RunData& data) const {
    study::ComparisonPlan plan;
    plan.rows = rows;
    plan.common = options_.make_config(data.train, rows.front().encoding.to_string());
    plan.seeds = seeds_;
    plan.recipe = options_.recipe();
    plan.model = options_.model();
    plan.restart = restart_;
    return plan;
  }

  void print_table(const Terminal& terminal, const study::Comparison& comparison) const {
    terminal.print("");
    terminal.print(study::report_caption(comparison));
    terminal.print("");
    auto table = study::report_table(comparison);
    table.rows.insert(table.rows.begin(), table.header);
    terminal.table(table.rows);
    terminal.print("");
    if (const std::string verdict = study::report_verdict(comparison); !verdict.empty()) {
      terminal.print(verdict);
      terminal.print("");
    }
    const std::filesystem::path folder(out_);
    terminal.table({{"table", (folder / "table.md").native()},
                    {"figures", (folder / "results.json").native()},
                    {"report", (folder / "report.html").native()}});
  }

  std::string encodings_, paper_, from_;
  bool family_ = false, restart_ = false;
  RunOptions options_;
  std::string out_;
  std::int64_t seeds_ = 1;
};

}  // namespace

std::unique_ptr<Command> make_compare_command() {
  return std::make_unique<CompareCommand>();
}

}  // namespace sape2::cli
