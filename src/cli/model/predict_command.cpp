#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"
#include "sape2/explain/picture.h"
#include "sape2/explain/prediction_sheet.h"
#include "sape2/nn/vit.h"
#include "sape2/study/prediction.h"
#include "sape2/train/mask_figures.h"

#include "cli/command.h"
#include "cli/limits.h"
#include "cli/model/mask_writer.h"
#include "cli/model_argument.h"
#include "cli/output_file.h"
#include "cli/program.h"
#include "cli/terminal.h"
#include "cli/whole_number.h"

#include <ATen/ATen.h>
#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cstdio>
#include <filesystem>
#include <optional>

namespace sape2::cli {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const explain::SeenPicture& seen) {
  Json classes = Json::array();
  for (const study::Prediction& prediction : seen.predictions) {
    classes.push_back({{"class", prediction.name},
                       {"index", prediction.index},
                       {"probability", prediction.probability}});
  }
  Json json{{"image", seen.picture.name}, {"predictions", std::move(classes)}};
  if (!seen.picture.label.empty()) json["label"] = seen.picture.label;
  return json;
}

std::string class_name(const nn::ModelConfig& config, std::size_t index) {
  return config.class_names.empty() ? "class " + std::to_string(index) : config.class_names[index];
}

// Nothing where the true mask is not known or has no counted pixel.
std::optional<double> iou_of(const explain::Picture& picture, const study::MaskPrediction& seen,
                             const nn::ModelConfig& config) {
  const auto classes = static_cast<std::size_t>(config.vit.classes);
  if (picture.mask.pixels.empty()) return std::nullopt;
  std::vector<std::int64_t> counts(classes * classes, 0);
  bool any = false;
  for (std::size_t i = 0; i < picture.mask.pixels.size(); ++i) {
    const std::size_t truth = picture.mask.pixels[i];
    if (truth >= classes) continue;
    ++counts[truth * classes + seen.mask.pixels[i]];
    any = true;
  }
  if (!any) return std::nullopt;
  return train::mean_iou(
      at::tensor(counts, at::kLong).view({config.vit.classes, config.vit.classes}));
}

Json json_of(const explain::Picture& picture, const study::MaskPrediction& seen,
             const nn::ModelConfig& config, const std::vector<std::string>& files) {
  Json classes = Json::array();
  for (std::size_t i = 0; i < seen.shares.size(); ++i) {
    classes.push_back({{"class", class_name(config, i)}, {"index", i}, {"share", seen.shares[i]}});
  }
  Json json{{"image", picture.name},
            {"height", seen.mask.height},
            {"width", seen.mask.width},
            {"classes", std::move(classes)}};
  if (const auto iou = iou_of(picture, seen, config)) json["mean IoU"] = 100 * *iou;
  if (!files.empty()) json["files"] = files;
  return json;
}

class PredictCommand : public Command {
 public:
  std::string name() const override { return "predict"; }
  std::string summary() const override { return "Say what a model sees in images"; }

  void declare(CLI::App& app) override {
    app.add_option("model", model_, "A model file, or the folder of a run")
        ->type_name("MODEL")
        ->required();
    app.add_option("images", images_,
                   "PNG or JPEG files, or images of a data set: cifar10:test:42, cifar10:test:0-11")
        ->type_name("IMAGE…")
        ->required();
    app.add_option("--top", top_, "Classes to name (default: 5)")
        ->check(whole_number(1, kMostClasses))
        ->type_name("K");
    app.add_option("--size", size_, "Scale images to N×N (default: the size trained at)")
        ->check(whole_number(1, kLargestImage))
        ->type_name("N");
    app.add_option("--sheet", sheet_, "Also draw a contact sheet: .png, .svg or .pdf")
        ->type_name("FILE");
    app.add_option("--out", out_,
                   "Of a model for segmentation: folder for NAME-mask.png and NAME-overlay.png")
        ->type_name("FOLDER");
    app.add_option("--root", root_, "Folder to look for the data set in")->type_name("PATH");
    app.add_option("--device", device_, "cpu (default), cuda or cuda:N")->type_name("DEVICE");
    app.add_flag("--json", json_, "Print JSON instead of text");
    app.footer(
        "Each image is scaled to cover the size the model was trained at, and its middle is used.\n"
        "If the true class of an image is known, the sheet shows which answers are right.\n"
        "A model for segmentation sees the whole image, stretched, and says what share of it each\n"
        "class has; with --out, it writes masks (a palette PNG: pixels are numbers of classes) "
        "and\n"
        "overlays, in the image's own size.\n\n"
        "  sape2 predict runs/first cat.jpg dog.png --top 3\n"
        "  sape2 predict runs/first cifar10:test:0-11 --sheet twelve.png\n"
        "  sape2 predict runs/pets cat.jpg oxford-pets:test:0-7 --out masks");
  }

  int run(Terminal& terminal) override {
    if (!sheet_.empty()) {
      explain::figure_format(sheet_);
      refuse_to_overwrite(sheet_, files_read());
    }
    const auto model = load_model_argument(model_, device_);
    if (model->config().head() == nn::Head::pixels) return predict_masks(terminal, *model);
    if (!out_.empty()) {
      throw Error("--out is for models of the task segmentation, and this one's is " +
                  model->config().task);
    }
    bool any_failed = false;
    std::vector<explain::SeenPicture> seen;
    explain::PictureSource source(root_);
    for (const std::string& name : images_) {
      try {
        for (explain::Picture& picture : source.find(name)) {
          auto predictions = look(*model, picture);
          seen.push_back({std::move(picture), std::move(predictions)});
          if (!json_) print(terminal, seen.back());
        }
      } catch (const Error& error) {
        tell(error);
        any_failed = true;
      }
    }
    const std::string count = explain::count_text(seen);
    if (!json_ && !count.empty()) terminal.print("\n" + count);
    if (json_) {
      Json results = Json::array();
      for (const explain::SeenPicture& one : seen) results.push_back(json_of(one));
      terminal.print(results.dump(2, ' ', false, Json::error_handler_t::replace));
    }
    if (!sheet_.empty() && !seen.empty()) {
      explain::write_prediction_sheet(sheet_, "What " + model_name_of(model_) + " sees", seen);
      if (!json_) terminal.print("wrote " + sheet_);
    }
    return any_failed ? kExitFailure : kExitSuccess;
  }

 private:
  std::vector<std::filesystem::path> files_read() const {
    std::vector<std::filesystem::path> read{model_file_of(model_)};
    read.insert(read.end(), images_.begin(), images_.end());
    return read;
  }

  int predict_masks(const Terminal& terminal, nn::ViT& model) const {
    if (!sheet_.empty()) {
      throw Error("--sheet shows the classes of images; masks are written with --out FOLDER");
    }
    MaskWriter writer(out_, model.config().vit.classes, files_read());
    bool any_failed = false;
    Json results = Json::array();
    explain::PictureSource source(root_, data::Target::masks);
    for (const std::string& name : images_) {
      try {
        for (const explain::Picture& picture : source.find(name)) {
          const study::MaskPrediction seen = segment(model, picture);
          const std::vector<std::string> files = writer.write(picture, seen.mask);
          if (json_) {
            results.push_back(json_of(picture, seen, model.config(), files));
          } else {
            print(terminal, picture, seen, model.config(), files);
          }
        }
      } catch (const Error& error) {
        tell(error);
        any_failed = true;
      }
    }
    if (json_) terminal.print(results.dump(2, ' ', false, Json::error_handler_t::replace));
    return any_failed ? kExitFailure : kExitSuccess;
  }

  study::MaskPrediction segment(nn::ViT& model, const explain::Picture& picture) const {
    try {
      return study::predict_mask(model, picture.image, size_);
    } catch (const Error& error) {
      throw Error(in_quotes(picture.name) + ": " + error.what());
    }
  }

  static void print(const Terminal& terminal, const explain::Picture& picture,
                    const study::MaskPrediction& seen, const nn::ModelConfig& config,
                    const std::vector<std::string>& files) {
    terminal.heading(picture.name);
    std::vector<std::vector<std::string>> rows;
    for (std::size_t i = 0; i < seen.shares.size(); ++i) {
      rows.push_back(
          {fmt::format("{:6.2f} %", 100 * seen.shares[i]), class_name(config, i) + " pixels"});
    }
    if (const auto iou = iou_of(picture, seen, config)) {
      rows.push_back({fmt::format("{:6.2f} %", 100 * *iou), "mean IoU with the true mask"});
    }
    for (const std::string& file : files) rows.push_back({"wrote", file});
    terminal.table(rows);
  }

  // One bad file does not keep the others from being looked at.
  static void tell(const Error& error) {
    std::fflush(stdout);
    std::fprintf(stderr, "sape2: %s\n", printable(error.what()).c_str());
  }

  std::vector<study::Prediction> look(nn::ViT& model, const explain::Picture& picture) const {
    try {
      return study::predict(model, picture.image, top_, size_);
    } catch (const Error& error) {
      throw Error(in_quotes(picture.name) + ": " + error.what());
    }
  }

  static void print(const Terminal& terminal, const explain::SeenPicture& seen) {
    const explain::Picture& picture = seen.picture;
    terminal.heading(picture.label.empty() ? picture.name : picture.name + ", " + picture.label);
    std::vector<std::vector<std::string>> rows;
    for (const study::Prediction& prediction : seen.predictions) {
      rows.push_back({fmt::format("{:6.2f} %", 100 * prediction.probability), prediction.name});
    }
    terminal.table(rows);
  }

  std::string model_, sheet_, out_, root_, device_ = "cpu";
  std::vector<std::string> images_;
  std::int64_t top_ = 5, size_ = 0;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_predict_command() {
  return std::make_unique<PredictCommand>();
}

}  // namespace sape2::cli
