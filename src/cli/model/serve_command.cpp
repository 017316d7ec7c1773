#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"
#include "sape2/data/locations.h"
#include "sape2/io/model_file.h"
#include "sape2/nn/vit.h"
#include "sape2/serve/explorer.h"
#include "sape2/serve/server.h"

#include "cli/command.h"
#include "cli/model_argument.h"
#include "cli/model_path.h"
#include "cli/program.h"
#include "cli/stop_signal.h"
#include "cli/terminal.h"
#include "cli/whole_number.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <thread>

namespace sape2::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostModels = 16;
constexpr long kMostExportedImages = 10'000;
constexpr auto kPoll = std::chrono::milliseconds(50);
constexpr auto kLongestStop = std::chrono::milliseconds(1500);

// Ends the program, as a success, if it has not ended by then. One layer of a large model on a
// large grid cannot be interrupted, and there is nothing that the server could leave half-written.
void end_within(std::chrono::milliseconds time) {
  std::thread([time] {
    std::this_thread::sleep_for(time);
    std::_Exit(kExitSuccess);
  }).detach();
}

std::string limits_text() {
  const serve::Limits limits;
  return fmt::format(
      "Limits: an upload is at most {} MiB and {} million pixels, PNG or JPEG; an image becomes "
      "at\n"
      "most {} patches (64×64); {} connections at once; {} requests wait for a thread, for {} s "
      "at\n"
      "most; a request has to arrive within {} s and its answer to be taken within {} s; an idle\n"
      "connection is closed after {} s. Of what clients ask for, at most {} MiB of images and {} "
      "MiB\n"
      "of q and k are kept, the oldest go first. While it runs the server reads no file at all.\n",
      limits.body_bytes >> 20, data::kMaxImagePixels >> 20, limits.patches, limits.clients,
      limits.waiting, limits.waiting_time.count() / 1000, limits.request_time.count() / 1000,
      limits.request_time.count() / 1000, limits.idle_time.count() / 1000,
      limits.upload_memory >> 20, limits.inspection_memory >> 20);
}

class ServeCommand : public Command {
 public:
  std::string name() const override { return "serve"; }
  std::string summary() const override {
    return "Open a local page to explore what a model's positions do";
  }

  void declare(CLI::App& app) override {
    app.add_option("models", models_,
                   "Model files or folders of runs (default: the models shipped with the program)")
        ->type_name("MODEL…");
    app.add_option("--data", data_,
                   "Data set whose images can be picked, or none (default: cifar10 where it is "
                   "found and the model has its classes, otherwise shapes)")
        ->type_name("NAME");
    app.add_option("--split", split_, "test (default) or train")
        ->check(CLI::IsMember({"test", "train"}))
        ->type_name("SPLIT");
    app.add_option("--root", root_, "Folder to look for the data set in")->type_name("PATH");
    app.add_option("--port", port_, "Port (default: 8322; 0: any free one)")
        ->check(whole_number(0, 65535))
        ->type_name("N");
    app.add_option("--host", host_, "Address to listen on (default: 127.0.0.1, this machine only)")
        ->type_name("ADDRESS");
    app.add_option("--device", device_, "cpu (default), cuda or cuda:N")->type_name("DEVICE");
    app.add_option(
           "--export", export_,
           "Serve nothing: write the page to a folder that any web server can give out; the "
           "models then run in the visitor's browser")
        ->type_name("FOLDER");
    app.add_option("--images", images_, "Images of the data set to write there (default: 24)")
        ->check(whole_number(0, kMostExportedImages))
        ->type_name("N");
    app.footer(limits_text() +
               "Ctrl-C stops it. The API is described in docs/serve.md.\n\n"
               "  sape2 serve runs/first runs/second --data cifar10\n"
               "  sape2 serve runs/first --export public/explorer");
  }

  int run(Terminal& terminal) override {
    if (export_.empty() && !serve::can_serve()) {
      throw Error("this build has no server: install libcpp-httplib-dev and build again");
    }
    if (models_.empty()) models_ = shipped_models();
    if (models_.size() > kMostModels) {
      throw Error(fmt::format("{} models are given; at most {} are served at once", models_.size(),
                              kMostModels));
    }
    if (!export_.empty()) return write_page(terminal);
    serve::ServerOptions options{.host = host_, .port = port_, .split = split_};
    for (const std::string& model : models_) {
      options.models.push_back({model_name_of(model), load_model_argument(model, device_)});
    }
    options.dataset = chosen_dataset(options.models.front().model->config());
    serve::Server server(std::move(options));
    serve_until_stopped(terminal, server);
    return kExitSuccess;
  }

 private:
  int write_page(const Terminal& terminal) const {
    serve::ExplorerOptions options{.split = split_, .images = images_};
    for (const std::string& model : models_) {
      options.models.push_back({model_name_of(model), model_file_of(model)});
    }
    const auto dataset = chosen_dataset(io::read_model_config(options.models.front().file));
    if (dataset) options.dataset = &*dataset;
    serve::write_explorer(export_, options);
    terminal.print(fmt::format("wrote {}; try it: python3 -m http.server --directory {}",
                               printable(export_), printable(export_)));
    return kExitSuccess;
  }

  void serve_until_stopped(const Terminal& terminal, serve::Server& server) {
    const StopSignal stop;
    terminal.print("serving on " + server.address() + "   (Ctrl-C stops)");
    std::fflush(stdout);
    std::thread thread([&] { server.run(); });
    while (!StopSignal::requested()) std::this_thread::sleep_for(kPoll);
    end_within(kLongestStop);
    server.stop();
    thread.join();
    terminal.print("stopped");
    std::fflush(stdout);
  }

  std::optional<data::Dataset> chosen_dataset(const nn::ModelConfig& config) const {
    const data::Split split = split_ == "train" ? data::Split::train : data::Split::test;
    if (data_ == "none") return std::nullopt;
    const bool segments = config.head() == nn::Head::pixels;
    if (!data_.empty()) {
      const auto folder = data::folder_of_name(data_);
      std::error_code error;
      const bool masked = segments && folder && fs::is_directory(*folder / "masks", error);
      return data::load_dataset(
          data_, split,
          {.root = root_, .target = masked ? data::Target::masks : data::Target::labels});
    }
    if (segments) return data::load_dataset("shapes", split, {});
    for (const char* name : {"cifar10", "cifar100", "fashion-mnist"}) {
      if (!data::find_dataset(name, root_)) continue;
      if (data::dataset_info(name).classes != config.vit.classes) continue;
      data::Dataset dataset = data::load_dataset(name, split, {.root = root_});
      if (config.class_names.empty() || config.class_names == dataset.class_names) return dataset;
    }
    return data::load_dataset("shapes", split, {});
  }

  std::vector<std::string> models_;
  std::string data_, split_ = "test", root_, host_ = "127.0.0.1", device_ = "cpu", export_;
  std::int64_t images_ = 24;
  int port_ = 8322;
};

}  // namespace

std::unique_ptr<Command> make_serve_command() {
  return std::make_unique<ServeCommand>();
}

}  // namespace sape2::cli
