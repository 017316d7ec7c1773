#include "sape2/data/image.h"
#include "sape2/error.h"
#include "sape2/in_quotes.h"
#include "sape2/study/prediction.h"

#include "cli/command.h"
#include "cli/limits.h"
#include "cli/model_argument.h"
#include "cli/program.h"
#include "cli/terminal.h"
#include "cli/whole_number.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cstdio>

namespace sape2::cli {
namespace {

constexpr long kMostClasses = 1 << 20;

using Json = nlohmann::ordered_json;

Json json_of(const std::string& image, const std::vector<study::Prediction>& predictions) {
  Json classes = Json::array();
  for (const study::Prediction& prediction : predictions) {
    classes.push_back({{"class", prediction.name},
                       {"index", prediction.index},
                       {"probability", prediction.probability}});
  }
  return {{"image", image}, {"predictions", std::move(classes)}};
}

class PredictCommand : public Command {
 public:
  std::string name() const override { return "predict"; }
  std::string summary() const override { return "Say what a model sees in PNG or JPEG files"; }

  void declare(CLI::App& app) override {
    app.add_option("model", model_, "A model file, or the folder of a run")
        ->type_name("MODEL")
        ->required();
    app.add_option("images", images_, "PNG or JPEG files")->type_name("IMAGE…")->required();
    app.add_option("--top", top_, "Classes to name (default: 5)")
        ->check(whole_number(1, kMostClasses))
        ->type_name("K");
    app.add_option("--size", size_, "Scale images to N×N (default: the size trained at)")
        ->check(whole_number(1, kLargestImage))
        ->type_name("N");
    app.add_option("--device", device_, "cpu (default), cuda or cuda:N")->type_name("DEVICE");
    app.add_flag("--json", json_, "Print JSON instead of text");
    app.footer(
        "Each image is scaled to cover the size the model was trained at, and its middle is used.\n"
        "Example: sape2 predict runs/first cat.jpg dog.png --top 3");
  }

  int run(Terminal& terminal) override {
    const auto model = load_model_argument(model_, device_);
    int exit_code = kExitSuccess;
    Json results = Json::array();
    for (const std::string& path : images_) {
      std::vector<study::Prediction> predictions;
      try {
        predictions = look(*model, path);
      } catch (const Error& error) {
        // One bad file does not keep the others from being looked at.
        std::fflush(stdout);
        std::fprintf(stderr, "sape2: %s\n", printable(error.what()).c_str());
        exit_code = kExitFailure;
        continue;
      }
      if (json_) {
        results.push_back(json_of(path, predictions));
      } else {
        print(terminal, path, predictions);
      }
    }
    if (json_) terminal.print(results.dump(2, ' ', false, Json::error_handler_t::replace));
    return exit_code;
  }

 private:
  std::vector<study::Prediction> look(nn::ViT& model, const std::string& path) const {
    const data::Image image = data::read_image(path);
    try {
      return study::predict(model, image, top_, size_);
    } catch (const Error& error) {
      throw Error(in_quotes(path) + ": " + error.what());
    }
  }

  static void print(const Terminal& terminal, const std::string& path,
                    const std::vector<study::Prediction>& predictions) {
    terminal.heading(path);
    std::vector<std::vector<std::string>> rows;
    for (const study::Prediction& prediction : predictions) {
      rows.push_back({fmt::format("{:6.2f} %", 100 * prediction.probability), prediction.name});
    }
    terminal.table(rows);
  }

  std::string model_, device_ = "cpu";
  std::vector<std::string> images_;
  std::int64_t top_ = 5, size_ = 0;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_predict_command() {
  return std::make_unique<PredictCommand>();
}

}  // namespace sape2::cli
