#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"
#include "sape2/base/nearest_name.h"
#include "sape2/nn/vit.h"
#include "sape2/study/probes.h"
#include "sape2/train/run.h"
#include "sape2/train/run_folder.h"

#include "cli/command.h"
#include "cli/model_argument.h"
#include "cli/program.h"
#include "cli/terminal.h"
#include "cli/whole_number.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

namespace sape2::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr long kMostMadeImages = 1 << 20;

Json json_of(const study::ProbeResult& result) {
  Json tables = Json::array();
  for (const study::ProbeTable& table : result.tables) {
    Json rows = Json::array();
    for (const study::ProbeRow& row : table.rows) {
      Json cells{{table.columns[0], row.label}};
      for (std::size_t i = 0; i < row.values.size(); ++i) {
        const double value = row.values[i];
        cells[table.columns[i + 1]] = std::isfinite(value) ? Json(value) : Json(nullptr);
      }
      rows.push_back(std::move(cells));
    }
    tables.push_back({{"title", table.title}, {"rows", std::move(rows)}});
  }
  return {{"probe", result.name},
          {"question", result.question},
          {"tables", std::move(tables)},
          {"reading", result.reading}};
}

void print(const Terminal& terminal, const study::ProbeResult& result) {
  terminal.heading(result.name);
  terminal.table({{result.question}});
  for (const study::ProbeTable& table : result.tables) {
    terminal.print("");
    terminal.print("  " + table.title);
    std::vector<std::vector<std::string>> rows{table.columns};
    for (const study::ProbeRow& row : table.rows) {
      rows.push_back({row.label});
      for (const double value : row.values) {
        rows.back().push_back(std::isfinite(value) ? fmt::format("{:.2f}", value) : "–");
      }
    }
    terminal.table(rows);
  }
  terminal.print("");
  terminal.table({{result.reading}});
  terminal.print("");
}

// What a model in the folder of a run was trained on; of any other file nothing is known.
train::DataConfig data_of_run(const std::filesystem::path& model) {
  std::error_code error;
  if (!std::filesystem::exists(model.parent_path() / "config.json", error)) {
    return {.name = "shapes"};
  }
  train::DataConfig data = train::RunFolder::read_config(model.parent_path()).data;
  data.image_size = 0;
  return data;
}

class ProbeCommand : public Command {
 public:
  std::string name() const override { return "probe"; }
  std::string summary() const override {
    return "Measure what a model's positions do: other sizes, shifts, regions, gates";
  }

  void declare(CLI::App& app) override {
    app.add_option("model", model_, "A model file, or the folder of a run")
        ->type_name("MODEL")
        ->required();
    app.add_option("--data", options_.data.name,
                   "Images for sizes, translation and gates (default: those of the run, or shapes)")
        ->type_name("NAME");
    app.add_option("--root", options_.data.root, "Folder to look for the data set in")
        ->type_name("PATH");
    app.add_option("--probes", probes_,
                   "Which: sizes, scale, translation, region, gates (default: all)")
        ->delimiter(',')
        ->type_name("LIST");
    app.add_option("--images", options_.images, "Images each probe looks at (default: 500)")
        ->check(whole_number(1, kMostMadeImages))
        ->type_name("N");
    app.add_option("--device", device_, "cpu (default), cuda or cuda:N")->type_name("DEVICE");
    app.add_flag("--json", json_, "Print JSON instead of text");
    app.footer("Example: sape2 probe runs/first --data cifar10 --probes sizes,translation");
  }

  int run(Terminal& terminal) override {
    for (const std::string& probe : probes_) {
      const auto& known = study::probe_names();
      if (std::ranges::find(known, probe) != known.end()) continue;
      throw Error("the probe " + in_quotes(probe) + " is not known; " + name_advice(probe, known));
    }
    const auto model = load_model_argument(model_, device_);
    if (options_.data.name.empty()) options_.data = data_of_run(model_file_of(model_));
    options_.data = train::at_size_of(model->config(), options_.data);
    Json results = Json::array();
    for (const std::string& probe : probes_.empty() ? study::probe_names() : probes_) {
      const study::ProbeResult result = study::run_probe(probe, *model, options_);
      if (json_) {
        results.push_back(json_of(result));
      } else {
        print(terminal, result);
      }
    }
    if (json_) terminal.print(results.dump(2, ' ', false, Json::error_handler_t::replace));
    return kExitSuccess;
  }

 private:
  std::string model_, device_ = "cpu";
  std::vector<std::string> probes_;
  study::ProbeOptions options_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_probe_command() {
  return std::make_unique<ProbeCommand>();
}

}  // namespace sape2::cli
