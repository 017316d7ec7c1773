#include "cli/command.h"
#include "cli/info/info_json.h"
#include "cli/info/info_text.h"
#include "cli/model_path.h"
#include "cli/program.h"
#include "cli/terminal.h"

#include <CLI/CLI.hpp>

namespace sape2::cli {
namespace {

class InfoCommand : public Command {
 public:
  std::string name() const override { return "info"; }
  std::string summary() const override {
    return "Show this machine, the encodings and models, or what a model file holds";
  }

  void declare(CLI::App& app) override {
    auto* model =
        app.add_option("model", model_, "A model file to describe, or the folder of a run")
            ->type_name("MODEL");
    app.add_option("--encoding", encoding_,
                   "Describe one encoding and its options, e.g. 'sape2-k[gain=-1]+ape'")
        ->type_name("ENCODING")
        ->excludes(model);
    app.add_flag("--json", json_, "Print JSON instead of text");
  }

  int run(Terminal& terminal) override {
    if (!model_.empty()) {
      show_model(terminal);
    } else if (!encoding_.empty()) {
      show_encoding(terminal);
    } else {
      show_machine(terminal);
    }
    return kExitSuccess;
  }

 private:
  void show_model(const Terminal& terminal) const {
    const ModelSummary model = summarise_model(model_file_of(model_));
    if (json_) return terminal.print(info_json(model));
    print_model(terminal, model);
  }

  void show_encoding(const Terminal& terminal) const {
    const auto spec = nn::EncodingSpec::parse(encoding_);
    if (json_) return terminal.print(info_json(spec));
    print_encoding(terminal, spec);
  }

  void show_machine(const Terminal& terminal) const {
    const MachineInfo machine = find_machine_info();
    if (json_) return terminal.print(info_json(machine));
    print_machine(terminal, machine);
    print_offers(terminal);
  }

  std::string model_;
  std::string encoding_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_info_command() {
  return std::make_unique<InfoCommand>();
}

}  // namespace sape2::cli
