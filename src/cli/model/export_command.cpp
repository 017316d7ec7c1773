#include "sape2/base/in_quotes.h"
#include "sape2/io/model_file.h"
#include "sape2/nn/vit.h"
#include "sape2/onnx/export.h"

#include "cli/command.h"
#include "cli/limits.h"
#include "cli/model_argument.h"
#include "cli/model_path.h"
#include "cli/output_file.h"
#include "cli/program.h"
#include "cli/terminal.h"
#include "cli/whole_number.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

namespace sape2::cli {
namespace {

class ExportCommand : public Command {
 public:
  std::string name() const override { return "export"; }
  std::string summary() const override { return "Write a model as an ONNX file"; }

  void declare(CLI::App& app) override {
    app.add_option("model", model_, "A model file, or the folder of a run")
        ->type_name("MODEL")
        ->required();
    app.add_option("-o,--out", out_, "The file to write")->type_name("FILE")->required();
    app.add_option("--size", size_,
                   "Height and width of the images that the file takes (default: the size trained "
                   "at)")
        ->expected(1, 2)
        ->check(whole_number(1, kLargestImage))
        ->type_name("N [N]");
    app.add_flag("--normalise", normalise_,
                 "The file takes pixels from 0 to 1 and normalises them itself");
    app.add_option("--opset", opset_,
                   fmt::format("Version of ONNX's operators (default: {})", onnx::kOldestOpset))
        ->check(whole_number(onnx::kOldestOpset, onnx::kNewestOpset))
        ->type_name("N");
    app.footer(
        "The file has standard operators in float32, one input \"images\" [batch, channels, "
        "height,\n"
        "width] and one output \"logits\" [batch, classes]. Images are normalised before, unless\n"
        "--normalise is given; mean, std and class names are in the file's metadata.\n\n"
        "  sape2 export runs/first -o first.onnx");
  }

  int run(Terminal& terminal) override {
    onnx::ExportOptions options{.normalise = normalise_, .opset = opset_};
    if (!size_.empty()) options.image_size = nn::Size2d{size_.front(), size_.back()};
    const auto file = model_file_of(model_);
    refuse_to_overwrite(out_, {file});
    const auto model = io::load_model(file);
    onnx::export_model(*model, out_, options);
    terminal.print(fmt::format("wrote {} ({:.1f} MB)", printable(out_),
                               static_cast<double>(std::filesystem::file_size(out_)) / 1e6));
    return kExitSuccess;
  }

 private:
  std::string model_, out_;
  std::vector<std::int64_t> size_;
  std::int64_t opset_ = onnx::kOldestOpset;
  bool normalise_ = false;
};

}  // namespace

std::unique_ptr<Command> make_export_command() {
  return std::make_unique<ExportCommand>();
}

}  // namespace sape2::cli
