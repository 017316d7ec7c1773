#include "sape2/base/error.h"
#include "sape2/data/dataset.h"
#include "sape2/infer/session.h"
#include "sape2/io/model_file.h"
#include "sape2/study/confusion_picture.h"
#include "sape2/study/uncertainty.h"
#include "sape2/train/evaluate.h"
#include "sape2/train/mask_figures.h"
#include "sape2/train/run.h"
#include "sape2/train/task.h"

#include "cli/command.h"
#include "cli/limits.h"
#include "cli/model_argument.h"
#include "cli/model_path.h"
#include "cli/output_file.h"
#include "cli/program.h"
#include "cli/terminal.h"
#include "cli/threads.h"
#include "cli/whole_number.h"

#include <ATen/ATen.h>
#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>

namespace sape2::cli {
namespace {

study::ConfusionMatrix confusion_of(const train::Measured& result,
                                    const std::vector<std::string>& names) {
  const auto* counts = result.confusion.data_ptr<std::int64_t>();
  return {result.confusion.size(0), {counts, counts + result.confusion.numel()}, names};
}

// Without LibTorch's operations: this is to show what the runtime makes of the bytes.
std::vector<float> normalised(const at::Tensor& bytes, std::span<const data::ByteScale> scales) {
  const auto* in = bytes.data_ptr<std::uint8_t>();
  const auto plane = static_cast<std::size_t>(bytes.size(2) * bytes.size(3));
  std::vector<float> pixels(static_cast<std::size_t>(bytes.numel()));
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    pixels[i] = scales[i / plane % scales.size()](in[i]);
  }
  return pixels;
}

train::Classifier classifier(const std::shared_ptr<infer::Session>& session) {
  const nn::ModelConfig& config = session->model().config();
  return [session, classes = config.vit.classes,
          scales = data::byte_scales({config.mean, config.deviation}, config.vit.channels)](
             const at::Tensor& bytes) {
    at::Tensor logits = at::empty({bytes.size(0), classes});
    const std::vector<float> pixels = normalised(bytes.contiguous(), scales);
    session->run({pixels.data(), bytes.size(0), bytes.size(2), bytes.size(3)},
                 {logits.data_ptr<float>(), static_cast<std::size_t>(logits.numel())});
    return logits;
  };
}

class EvalCommand : public Command {
 public:
  std::string name() const override { return "eval"; }
  std::string summary() const override {
    return "Measure a model's accuracy on a data set, at any image size";
  }

  void declare(CLI::App& app) override {
    app.add_option("model", model_, "A model file, or the folder of a run")
        ->type_name("MODEL")
        ->required();
    app.add_option("--data", data_.name, "Data set, as `sape2 data list` shows them")
        ->type_name("NAME")
        ->required();
    app.add_option("--root", data_.root, "Folder to look for the data set in")->type_name("PATH");
    app.add_option("--split", split_, "Images to use: test (default) or train")
        ->check(CLI::IsMember({"test", "train"}))
        ->type_name("SPLIT");
    app.add_option("--size", data_.image_size, "Resize images to N×N (default: as they are)")
        ->check(whole_number(1, kLargestImage))
        ->type_name("N");
    app.add_option("--images", images_, "Use the first N images only")
        ->check(whole_number(1, kMostImages))
        ->type_name("N");
    app.add_option("--batch-size", options_.batch_size,
                   "Images at a time (default: 256, on a GPU 2048)")
        ->check(whole_number(1, kMostImages))
        ->type_name("N");
    app.add_option("--device", device_, "cpu (default), cuda or cuda:N")->type_name("DEVICE");
    app.add_option("--runtime", runtime_,
                   "What computes: libtorch (default) or infer, the runtime without LibTorch")
        ->check(CLI::IsMember({"libtorch", "infer"}))
        ->type_name("RUNTIME");
    app.add_option("--confusion", confusion_, "Draw the confusion matrix as a PNG")
        ->type_name("FILE");
    app.add_flag("--json", json_, "Print JSON instead of lines");
    app.footer(
        "Prints top-1 and top-5 in %, the mean cross-entropy, the number of images, and how far\n"
        "top-1 can be trusted on so many images: the 95 % interval of the share (Wilson's).\n"
        "Of a model for segmentation: mean IoU, boundary F1 and pixel accuracy in %, the\n"
        "cross-entropy of a pixel, the number of images, and the IoU of each class.\n\n"
        "  sape2 eval runs/first --data cifar10 --size 48 --confusion confusion.png\n"
        "  sape2 eval runs/pets --data oxford-pets");
  }

  int run(Terminal& terminal) override {
    refuse_to_overwrite(confusion_, {model_file_of(model_)});
    const Evaluator evaluate = make_evaluator();  // a missing model is said before data is read
    const data::Split split = split_ == "train" ? data::Split::train : data::Split::test;
    data_.train_images = data_.test_images = images_;
    const nn::ModelConfig config = io::read_model_config(model_file_of(model_));
    const train::Task& task = train::task_named(config.task);
    const data::Dataset dataset =
        train::load_split(train::at_size_of(config, data_), split, task.target());
    const train::Measured result = evaluate(dataset);
    if (!confusion_.empty()) {
      study::draw_confusion(confusion_of(result, dataset.class_names),
                            fmt::format("{} on {}: {:.2f} %", config.encoding.to_string(),
                                        dataset.name, 100 * train::main_figure(result.figures)),
                            confusion_);
    }
    if (json_) {
      print_json(terminal, result, dataset);
    } else {
      print_text(terminal, result, dataset);
    }
    return kExitSuccess;
  }

 private:
  using Evaluator = std::function<train::Measured(const data::Dataset&)>;

  Evaluator make_evaluator() const {
    if (runtime_ == "libtorch") {
      return [this, model = load_model_argument(model_, device_)](const data::Dataset& dataset) {
        return train::task_of(*model).measure(*model, dataset, options_);
      };
    }
    if (device_ != "cpu") throw Error("--runtime infer computes on the CPU; leave --device out");
    const auto session =
        std::make_shared<infer::Session>(infer::Model::open(model_file_of(model_)),
                                         infer::SessionOptions{.threads = threads_in_use()});
    nn::require_classifier(session->model().config(), "--runtime infer");
    return [this, session](const data::Dataset& dataset) {
      const auto result =
          train::evaluate(session->model().config(), classifier(session), dataset, options_);
      return train::measured(result);
    };
  }

  static void print_text(const Terminal& terminal, const train::Measured& result,
                         const data::Dataset& dataset) {
    std::string text;
    for (const train::Figure& figure : result.figures) {
      text += fmt::format("{} {:.2f}\n", train::figure_name(figure.key), 100 * figure.value);
    }
    text += fmt::format("loss {:.4f}\nimages {}", result.loss, result.images);
    if (dataset.target() == data::Target::masks) {
      const std::vector<double> ious = train::class_ious(result.confusion);
      for (std::size_t i = 0; i < ious.size(); ++i) {
        text += std::isnan(ious[i])
                    ? fmt::format("\nIoU of {} –", dataset.class_names[i])
                    : fmt::format("\nIoU of {} {:.2f}", dataset.class_names[i], 100 * ious[i]);
      }
    } else {
      const study::Interval interval = interval_of(result);
      text += fmt::format("\ninterval {:.2f} to {:.2f}", 100 * interval.low, 100 * interval.high);
    }
    terminal.print(text);
  }

  static study::Interval interval_of(const train::Measured& result) {
    return study::share_interval(train::main_figure(result.figures), result.images);
  }

  void print_json(Terminal& terminal, const train::Measured& result,
                  const data::Dataset& dataset) const {
    const auto matrix = confusion_of(result, {});
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    for (std::int64_t i = 0; i < matrix.classes; ++i) {
      const auto begin = matrix.counts.begin() + i * matrix.classes;
      rows.push_back(std::vector<std::int64_t>(begin, begin + matrix.classes));
    }
    nlohmann::ordered_json json{{"model", model_file_of(model_).native()},
                                {"data", dataset.name},
                                {"split", split_},
                                {"height", dataset.height()},
                                {"width", dataset.width()},
                                {"images", result.images}};
    for (const train::Figure& figure : result.figures) {
      json[train::figure_name(figure.key)] = 100 * figure.value;
    }
    if (dataset.target() == data::Target::masks) {
      for (const double iou : train::class_ious(result.confusion)) {
        json["IoU"].push_back(std::isnan(iou) ? nlohmann::ordered_json()
                                              : nlohmann::ordered_json(100 * iou));
      }
    } else {
      const study::Interval interval = interval_of(result);
      json["top-1 interval"] = {100 * interval.low, 100 * interval.high};
    }
    json["loss"] = result.loss;
    json["classes"] = dataset.class_names;
    json["confusion"] = rows;
    terminal.print(json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  }

  std::string model_, split_ = "test", device_ = "cpu", runtime_ = "libtorch", confusion_;
  train::DataConfig data_;
  std::int64_t images_ = 0;
  train::EvaluateOptions options_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_eval_command() {
  return std::make_unique<EvalCommand>();
}

}  // namespace sape2::cli
