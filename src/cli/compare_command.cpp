#include "sape2/error.h"
#include "sape2/nn/presets.h"
#include "sape2/study/comparison.h"
#include "sape2/study/comparison_report.h"

#include "cli/command.h"
#include "cli/comparison_progress.h"
#include "cli/program.h"
#include "cli/recipe_flags.h"
#include "cli/stop_signal.h"
#include "cli/terminal.h"
#include "cli/threads.h"
#include "cli/whole_number.h"

#include <CLI/CLI.hpp>

namespace sape2::cli {
namespace {

constexpr long kMostSeeds = 1000;
constexpr long kLargestSeed = 1L << 62;
constexpr long kLargestImage = 4096;
constexpr long kMostImages = 1 << 30;
constexpr int kExitInterrupted = 130;  // as a shell reports SIGINT

class CompareCommand : public Command {
 public:
  std::string name() const override { return "compare"; }
  std::string summary() const override {
    return "Train several encodings under one recipe and put them in one table";
  }

  void declare(CLI::App& app) override {
    declare_rows(app);
    declare_data(app);
    app.add_option("--model", model_, "Model preset, see `sape2 info` (default: vit-small)")
        ->type_name("PRESET");
    app.add_option("--seeds", seeds_, "Runs of each encoding (default: 1)")
        ->check(whole_number(1, kMostSeeds))
        ->type_name("N");
    app.add_option("--seed", seed_, "Seed of the first (default: 0)")
        ->check(whole_number(0, kLargestSeed))
        ->type_name("N");
    app.add_option("--device", device_, "cpu (default), cuda or cuda:N")->type_name("DEVICE");
    app.add_option("--out", out_, "Folder of the runs and the reports")
        ->type_name("DIR")
        ->required();
    recipe_.declare(app);
    app.footer(
        "The same command goes on where it was cut off: finished runs are taken as they are.\n"
        "Example: sape2 compare --encodings 'ape,rope2d,sape2-rel-k[gates=open]' --data cifar10 "
        "--recipe quick --seeds 3 --out runs/three");
  }

  int run(Terminal& terminal) override {
    const study::ComparisonPlan plan = make_plan();
    ComparisonProgress progress;
    const StopSignal stop;
    const auto comparison =
        study::run_comparison(plan, out_, progress, [&] { return stop.requested(); });
    print_table(terminal, comparison);
    if (comparison.finished) return kExitSuccess;
    terminal.print("stopped; the same command goes on from here");
    return kExitInterrupted;
  }

 private:
  void declare_rows(CLI::App& app) {
    auto* rows = app.add_option_group("Rows", "What to compare: one of these");
    rows->add_option("--encodings", encodings_, "Encodings, e.g. 'ape,sape2-k[gain=-1]+ape'")
        ->type_name("LIST");
    rows->add_option("--paper", paper_,
                     "The paper's table1 or table2, its figures beside ours (recipe: paper)")
        ->check(CLI::IsMember({"table1", "table2"}))
        ->type_name("TABLE");
    rows->add_flag("--family", family_,
                   "From sape2-k to sape2-rel-k, one option a step, and the open-gate control");
    rows->require_option(1);
  }

  void declare_data(CLI::App& app) {
    app.add_option("--data", data_.name, "Data set, as `sape2 data list` shows them")
        ->type_name("NAME")
        ->required();
    app.add_option("--root", data_.root, "Folder to look for the data set in")->type_name("PATH");
    app.add_option("--image-size", data_.image_size, "Resize images to N×N (default: as they are)")
        ->check(whole_number(1, kLargestImage))
        ->type_name("N");
    app.add_option("--train-images", data_.train_images, "Train on the first N images only")
        ->check(whole_number(1, kMostImages))
        ->type_name("N");
    app.add_option("--test-images", data_.test_images, "Test on the first N images only")
        ->check(whole_number(1, kMostImages))
        ->type_name("N");
  }

  study::ComparisonPlan make_plan() {
    study::ComparisonPlan plan;
    if (!paper_.empty()) {
      recipe_.use_unless_given("paper");
      plan.rows = study::paper_rows(paper_, data_.name);
    } else {
      plan.rows = family_ ? study::family_rows() : study::listed_rows(encodings_);
    }
    plan.common.model.vit = nn::preset(model_).config;
    plan.common.recipe = recipe_.recipe();
    plan.common.data = data_;
    plan.common.seed = static_cast<std::uint64_t>(seed_);
    plan.common.device = device_;
    plan.common.threads = threads_in_use();
    plan.seeds = seeds_;
    plan.recipe = recipe_.name();
    plan.model = model_;
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
    const std::filesystem::path folder(out_);
    terminal.table({{"table", (folder / "table.md").native()},
                    {"figures", (folder / "results.json").native()},
                    {"report", (folder / "report.html").native()}});
  }

  std::string encodings_, paper_;
  bool family_ = false;
  train::DataConfig data_;
  std::string model_ = "vit-small", device_ = "cpu", out_;
  std::int64_t seeds_ = 1;
  std::int64_t seed_ = 0;
  RecipeFlags recipe_{"quick"};
};

}  // namespace

std::unique_ptr<Command> make_compare_command() {
  return std::make_unique<CompareCommand>();
}

}  // namespace sape2::cli
