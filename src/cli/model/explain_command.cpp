#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"
#include "sape2/explain/figure.h"
#include "sape2/explain/picture.h"
#include "sape2/io/npz.h"
#include "sape2/io/tensor_file.h"
#include "sape2/nn/vit.h"

#include "cli/command.h"
#include "cli/limits.h"
#include "cli/model_argument.h"
#include "cli/output_file.h"
#include "cli/program.h"
#include "cli/terminal.h"
#include "cli/whole_number.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

namespace sape2::cli {
namespace {

constexpr long kMostLayers = 1024;
constexpr std::size_t kMostPatchesChosen = 8;
constexpr std::int64_t kMostSavedRows = 4096;  // of a whole N×N matrix in a file of numbers

class ExplainCommand : public Command {
 public:
  std::string name() const override { return "explain"; }
  std::string summary() const override {
    return "Draw what a model's positions do on an image: bias, gates, positions, attention";
  }

  void declare(CLI::App& app) override {
    app.add_option("model", model_, "A model file, or the folder of a run")
        ->type_name("MODEL")
        ->required();
    app.add_option("images", images_,
                   "PNG or JPEG files, or images of a data set: cifar10:test:42, cifar10:test:0-15")
        ->type_name("IMAGE…")
        ->required();
    app.add_option("-o,--out", out_, "Figure to write: .png, .svg or .pdf")->type_name("FILE");
    app.add_option("--what", what_, "bias (default), bias-x, bias-y, gates, positions or attention")
        ->type_name("WHAT");
    app.add_option("--patch", patches_,
                   "Patch to look from, row and column from 0; may be given several times "
                   "(default: one of the subject, one of the background)")
        ->type_name("Y,X")
        ->allow_extra_args(false);
    app.add_option("--layer", layer_, "Layer, from 1 (default: the mean of all)")
        ->check(whole_number(1, kMostLayers))
        ->type_name("N");
    app.add_option("--head", head_, "Head, from 1 (default: the mean of all)")
        ->check(whole_number(1, kMostLayers))
        ->type_name("N");
    app.add_option("--compare", compare_, "A second model, drawn side by side")
        ->type_name("MODEL2");
    app.add_flag("--grid", grid_, "A contact sheet: each image and the map from its first patch");
    app.add_option("--size", size_.shorter_side,
                   "Scale the shorter side of images to N (default: as the model was trained)")
        ->check(whole_number(1, kLargestImage))
        ->type_name("N");
    app.add_option("--colours", colours_, "green (default), or cividis for every colour vision")
        ->type_name("NAME");
    app.add_option("--dpi", dots_per_inch_, "Dots per inch of a PNG (default: 144)")
        ->check(whole_number(36, 600))
        ->type_name("N");
    app.add_option("--npz", npz_, "Also write the numbers, for NumPy")->type_name("FILE");
    app.add_option("--safetensors", safetensors_, "Also write the numbers, as safetensors")
        ->type_name("FILE");
    app.add_option("--root", root_, "Folder to look for the data set in")->type_name("PATH");
    app.add_option("--device", device_, "cpu (default), cuda or cuda:N")->type_name("DEVICE");
    app.footer(
        "Images keep their proportions and are scaled to cover the size the model was trained at.\n"
        "The patches are picked from what the model makes of the image: its patches after the "
        "last\n"
        "layer are split into two groups of like content; the group that fills more of the border\n"
        "is the background, and each group is shown from the patch that is most its own. A bias "
        "is\n"
        "shown before its gain; the scale and the caption say what it does to the attention's\n"
        "weights. Soft positions stand beside the numbers that APE and RPE give.\n\n"
        "  sape2 explain models/cifar10-sape2-k.safetensors cat.jpg -o cat.png\n"
        "  sape2 explain runs/first cifar10:test:42 --what positions --patch 3,4 -o p.svg\n"
        "  sape2 explain runs/first cifar10:test:0-11 --grid -o sheet.pdf\n"
        "  sape2 explain runs/first cifar10:test:42 --compare runs/second -o both.png --npz b.npz");
  }

  int run(Terminal& terminal) override {
    const explain::FigureOptions options = checked_options();
    refuse_lost_files();
    const explain::DrawOptions draw{.palette = explain::parse_palette(colours_),
                                    .contact_sheet = grid_,
                                    .dots_per_inch = static_cast<double>(dots_per_inch_)};
    std::vector<std::shared_ptr<nn::ViT>> models{load_model_argument(model_, device_)};
    std::vector<std::string> names{model_name_of(model_)};
    if (!compare_.empty()) {
      models.push_back(load_model_argument(compare_, device_));
      names.push_back(model_name_of(compare_));
    }
    explain::Figure figure{.what = options.what, .selection = options.selection, .rows = {}};
    explain::PictureSource source(root_);
    for (const std::string& image : images_) {
      for (const explain::Picture& picture : source.find(image)) {
        figure.rows.push_back(row_of(picture, models, names, options));
      }
    }
    if (grid_) explain::share_ranges(figure);
    write(terminal, figure, draw);
    return kExitSuccess;
  }

 private:
  explain::FigureOptions checked_options() const {
    if (out_.empty() && npz_.empty() && safetensors_.empty()) {
      throw Error("explain has nothing to write: give a figure with -o FILE.png, .svg or .pdf");
    }
    if (!out_.empty()) explain::figure_format(out_);
    explain::FigureOptions options;
    options.what = explain::parse_what(what_);
    if (layer_ > 0) options.selection.layer = layer_ - 1;
    if (head_ > 0) options.selection.head = head_ - 1;
    for (const std::string& patch : patches_) {
      options.patches.push_back(explain::parse_patch(patch));
    }
    if (options.patches.size() > kMostPatchesChosen) {
      throw Error(fmt::format("{} patches are given; a figure shows at most {}",
                              options.patches.size(), kMostPatchesChosen));
    }
    if (grid_ && options.what == explain::What::positions) {
      throw Error("--grid has no room for the numbers of --what positions; leave one of them out");
    }
    options.with_matrix = !grid_;
    if (!npz_.empty() || !safetensors_.empty()) options.most_matrix_rows = kMostSavedRows;
    return options;
  }

  void refuse_lost_files() const {
    std::vector<std::filesystem::path> read{model_file_of(model_)};
    if (!compare_.empty()) read.push_back(model_file_of(compare_));
    read.insert(read.end(), images_.begin(), images_.end());
    for (const std::string& file : {out_, npz_, safetensors_}) refuse_to_overwrite(file, read);
  }

  explain::FigureRow row_of(const explain::Picture& picture,
                            const std::vector<std::shared_ptr<nn::ViT>>& models,
                            const std::vector<std::string>& names,
                            const explain::FigureOptions& options) const {
    std::vector<explain::Inspection> held;
    held.reserve(models.size());
    std::vector<const explain::Inspection*> inspections;
    for (const auto& model : models) {
      held.emplace_back(model, picture.image, size_);
      inspections.push_back(&held.back());
    }
    return explain::figure_row(picture, inspections, names, options);
  }

  void write(const Terminal& terminal, const explain::Figure& figure,
             const explain::DrawOptions& draw) const {
    if (!out_.empty()) {
      explain::write_figure(out_, figure, draw);
      terminal.print("wrote " + printable(out_));
    }
    if (!npz_.empty()) {
      io::write_npz(npz_, explain::figure_numbers(figure));
      terminal.print("wrote " + printable(npz_));
    }
    if (!safetensors_.empty()) {
      io::save_tensors(safetensors_, explain::figure_numbers(figure));
      terminal.print("wrote " + printable(safetensors_));
    }
  }

  std::string model_, compare_, out_, what_ = "bias", colours_ = "green", npz_, safetensors_;
  std::string root_, device_ = "cpu";
  std::vector<std::string> images_, patches_;
  std::int64_t layer_ = 0, head_ = 0;
  int dots_per_inch_ = 144;
  explain::InputSize size_;
  bool grid_ = false;
};

}  // namespace

std::unique_ptr<Command> make_explain_command() {
  return std::make_unique<ExplainCommand>();
}

}  // namespace sape2::cli
