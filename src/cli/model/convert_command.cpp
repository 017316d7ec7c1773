#include "sape2/base/in_quotes.h"
#include "sape2/io/model_file.h"
#include "sape2/nn/vit.h"

#include "cli/command.h"
#include "cli/model_argument.h"
#include "cli/model_path.h"
#include "cli/output_file.h"
#include "cli/program.h"
#include "cli/terminal.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <map>

namespace sape2::cli {
namespace {

const std::map<std::string, io::WeightType> kWeightTypes{{"float32", io::WeightType::float32},
                                                         {"bfloat16", io::WeightType::bfloat16}};

class ConvertCommand : public Command {
 public:
  std::string name() const override { return "convert"; }
  std::string summary() const override { return "Write a model with weights of another type"; }

  void declare(CLI::App& app) override {
    app.add_option("model", model_, "A model file, or the folder of a run")
        ->type_name("MODEL")
        ->required();
    app.add_option("-o,--out", out_, "The file to write")->type_name("FILE")->required();
    app.add_option("--weights", weights_, "bfloat16 (default: half the size) or float32")
        ->check(CLI::IsMember({"bfloat16", "float32"}))
        ->type_name("TYPE");
    app.footer(
        "Every command reads both; models compute in float32, with weights as they were rounded.\n"
        "Example: sape2 convert runs/first -o first.safetensors");
  }

  int run(Terminal& terminal) override {
    const auto file = model_file_of(model_);
    refuse_to_overwrite(out_, {file});
    const auto model = io::load_model(file);
    const auto original = io::SafetensorsFile::open(file);
    io::save_model(out_, *model,
                   {.weights = kWeightTypes.at(weights_), .extra = io::further_metadata(original)});
    terminal.print(fmt::format("wrote {} ({:.1f} MB)", printable(out_),
                               static_cast<double>(std::filesystem::file_size(out_)) / 1e6));
    return kExitSuccess;
  }

 private:
  std::string model_, out_, weights_ = "bfloat16";
};

}  // namespace

std::unique_ptr<Command> make_convert_command() {
  return std::make_unique<ConvertCommand>();
}

}  // namespace sape2::cli
