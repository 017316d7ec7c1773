#include "sape2/base/error.h"
#include "sape2/data/dataset.h"
#include "sape2/data/get.h"
#include "sape2/data/locations.h"

#include "cli/command.h"
#include "cli/data/data_progress.h"
#include "cli/program.h"
#include "cli/terminal.h"
#include "cli/whole_number.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <optional>

namespace sape2::cli {
namespace {

using Json = nlohmann::ordered_json;

bool is_fetched(const data::DatasetInfo& info) {
  return info.name != "shapes" && info.name != "folder";
}

std::string size_text(const data::DatasetInfo& info) {
  if (info.height == 0) return "any size";
  return fmt::format("{} × {} {}", info.width, info.height, info.channels == 1 ? "grey" : "RGB");
}

std::string count_text(const data::DatasetInfo& info) {
  if (info.train_images == 0) return "-";
  return fmt::format("{} + {}", info.train_images, info.test_images);
}

std::string place_text(const data::DatasetInfo& info, const std::string& root) {
  if (!is_fetched(info)) return info.origin;
  const auto folder = data::find_dataset(info.name, root);
  return folder ? folder->string() : fmt::format("not here: sape2 data get {}", info.name);
}

/// `sape2 data list | get | info`.
class DataCommand : public Command {
 public:
  std::string name() const override { return "data"; }
  std::string summary() const override { return "List, fetch and describe data sets"; }

  void declare(CLI::App& app) override {
    app.footer(
        "Data sets are looked for in --root, $SAPE2_DATA, ~/.cache/sape2 and /usr/share/datasets;\n"
        "`get` puts them into the first of these that is given.");
    list_ = app.add_subcommand("list", "All data sets and where they lie");
    get_ = app.add_subcommand("get", "Make sure data sets lie here, whole and verified");
    info_ = app.add_subcommand("info", "Read a data set and tell what it holds");
    get_->add_option("names", names_, "cifar10, cifar100, fashion-mnist, oxford-pets")
        ->type_name("NAME");
    get_->add_flag("--offline", offline_, "Use only what this machine has");
    info_->add_option("name", info_name_, "A data set, or folder:PATH")->type_name("NAME");
    info_->add_option("--image-size", options_.image_size, "Resize images to N × N pixels")
        ->check(whole_number(1, 4096))
        ->type_name("N");
    info_->add_flag("--masks", masks_, "Read masks instead of classes of images");
    info_->add_option("--seed", options_.seed, "Of shapes, and of a folder's split")
        ->check(whole_number(0, std::numeric_limits<long>::max()))
        ->type_name("N");
    for (CLI::App* action : {list_, get_, info_}) {
      action->add_option("--root", root_, "Where data sets lie")->type_name("FOLDER");
      action->add_flag("--json", json_, "Print JSON instead of text");
    }
  }

  int run(Terminal& terminal) override {
    if (list_->parsed()) {
      list(terminal);
    } else if (get_->parsed()) {
      get(terminal);
    } else if (info_->parsed()) {
      info(terminal);
    } else {
      throw Error("data: say what to do: list, get NAME or info NAME");
    }
    return kExitSuccess;
  }

 private:
  void list(Terminal& terminal) const {
    Json all = Json::array();
    std::vector<std::vector<std::string>> rows;
    for (const data::DatasetInfo& info : data::known_datasets()) {
      const auto folder =
          is_fetched(info) ? data::find_dataset(info.name, root_) : std::optional<fs_path>();
      all.push_back({{"name", info.name},
                     {"summary", info.summary},
                     {"origin", info.origin},
                     {"classes", info.classes},
                     {"channels", info.channels},
                     {"height", info.height},
                     {"width", info.width},
                     {"train_images", info.train_images},
                     {"test_images", info.test_images},
                     {"folder", folder ? Json(folder->string()) : Json()}});
      rows.push_back(
          {info.name, info.summary, size_text(info), count_text(info), place_text(info, root_)});
    }
    if (json_) return terminal.print(all.dump(2, ' ', false, Json::error_handler_t::replace));
    terminal.heading("Data sets");
    terminal.table(rows);
  }

  void get(Terminal& terminal) const {
    if (names_.empty()) throw Error("data get: say which data set, e.g. `sape2 data get cifar10`");
    for (const std::string& name : names_) {
      const data::DatasetInfo& info = data::dataset_info(name);
      if (info.name == "folder")
        throw Error("a folder of images is yours already: use folder:PATH");
    }
    Json all = Json::array();
    for (const std::string& name : names_) {
      if (name == "shapes") {
        all.push_back({{"name", name}, {"folder", nullptr}, {"origin", "generated"}});
        if (!json_) terminal.print("shapes is generated when it is used: there is nothing to get");
        continue;
      }
      DataProgress progress;
      const data::GetResult result =
          data::get_dataset(name, {.root = root_, .offline = offline_}, progress);
      all.push_back(
          {{"name", name}, {"folder", result.folder.string()}, {"origin", result.origin}});
      if (!json_) {
        terminal.print(fmt::format("{}: {} ({})", name, result.folder.string(), result.origin));
      }
    }
    if (json_) terminal.print(all.dump(2, ' ', false, Json::error_handler_t::replace));
  }

  void info(Terminal& terminal) {
    if (info_name_.empty())
      throw Error("data info: say which data set, e.g. `sape2 data info shapes`");
    options_.root = root_;
    if (masks_) options_.target = data::Target::masks;
    const data::Dataset train = data::load_dataset(info_name_, data::Split::train, options_);
    const data::Dataset test = data::load_dataset(info_name_, data::Split::test, options_);
    const auto train_counts = data::images_per_class(train),
               test_counts = data::images_per_class(test);
    if (json_) {
      Json classes = Json::array();
      for (std::size_t i = 0; i < train.class_names.size(); ++i) {
        classes.push_back(
            {{"name", train.class_names[i]}, {"train", train_counts[i]}, {"test", test_counts[i]}});
      }
      const Json all{{"name", train.name},
                     {"channels", train.channels()},
                     {"height", train.height()},
                     {"width", train.width()},
                     {"train_images", train.size()},
                     {"test_images", test.size()},
                     {"mean", train.normalisation.mean},
                     {"deviation", train.normalisation.deviation},
                     {"classes", classes}};
      // Class names are folder names, which need not be UTF-8.
      return terminal.print(all.dump(2, ' ', false, Json::error_handler_t::replace));
    }
    terminal.heading(train.name);
    terminal.table(
        {{"images", fmt::format("{} for training, {} for tests", train.size(), test.size())},
         {"size", fmt::format("{} × {}, {} channel{}", train.width(), train.height(),
                              train.channels(), train.channels() == 1 ? "" : "s")},
         {"mean", fmt::format("{}", fmt::join(train.normalisation.mean, ", "))},
         {"deviation", fmt::format("{}", fmt::join(train.normalisation.deviation, ", "))},
         {"classes", std::to_string(train.classes())}});
    terminal.heading(masks_ ? "Images that show a class (training, tests)"
                            : "Classes (training, tests)");
    std::vector<std::vector<std::string>> rows;
    for (std::size_t i = 0; i < train.class_names.size(); ++i) {
      rows.push_back(
          {train.class_names[i], std::to_string(train_counts[i]), std::to_string(test_counts[i])});
    }
    terminal.table(rows);
  }

  using fs_path = std::filesystem::path;

  CLI::App* list_ = nullptr;
  CLI::App* get_ = nullptr;
  CLI::App* info_ = nullptr;
  std::vector<std::string> names_;
  std::string info_name_;
  std::string root_;
  data::LoadOptions options_;
  bool offline_ = false;
  bool masks_ = false;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_data_command() {
  return std::make_unique<DataCommand>();
}

}  // namespace sape2::cli
