#include "sape2/error.h"
#include "sape2/io/atomic_file.h"
#include "sape2/nn/vit.h"

#include "cli/bench/train_measure.h"
#include "cli/command.h"
#include "cli/program.h"
#include "cli/run_options.h"
#include "cli/terminal.h"
#include "cli/whole_number.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace sape2::cli {
namespace {

using Json = nlohmann::ordered_json;

std::vector<std::string> table_row(const std::string& name, const TrainRow& row,
                                   const StepTime& step) {
  const auto part = [&](double time) {
    return fmt::format("{:.1f} ms ({:.0f} %)", time, 100 * time / step.total());
  };
  return {name,
          fmt::format("{:.1f}", row.images_per_second(step)),
          fmt::format("{:.1f} ms", step.total()),
          part(step.data),
          part(step.forward),
          part(step.backward),
          part(step.optimizer)};
}

Json json_of(const TrainRow& row, const StepTime& step) {
  return {{"images_per_second", row.images_per_second(step)},
          {"step_ms", step.total()},
          {"data_ms", step.data},
          {"forward_ms", step.forward},
          {"backward_ms", step.backward},
          {"optimizer_ms", step.optimizer}};
}

class TrainBenchmark : public Command {
 public:
  std::string name() const override { return "train"; }
  std::string summary() const override {
    return "Images a second in training, on the fused attention and on the plain formulas";
  }

  void declare(CLI::App& app) override {
    options_.prefer_data("shapes");
    options_.declare(app);
    app.add_option("--encoding", encoding_, "Position encoding (default: sape2-rel-k)")
        ->type_name("ENCODING")
        ->group("Model");
    app.add_option("--rounds", rounds_, "Timed steps of each path (default: 8)")
        ->check(whole_number(1, 100000))
        ->type_name("N");
    app.add_option("--json", json_, "Write the figures to this file too")->type_name("FILE");
  }

  int run(Terminal& terminal) override {
    if (!encoding_.empty()) nn::EncodingSpec::parse(encoding_);  // before data is read
    const train::RunData data = options_.load_data();
    const train::RunConfig config = options_.make_config(data.train, encoding_);
    const TrainRow row = measure_training(config, data.train, rounds_);
    const double ratio = row.reference.total() / row.fused.total();

    const nn::Size2d size = config.model.vit.image_size;
    terminal.heading(
        fmt::format("{} with {} parameters, {} images of {}×{} a step, {} threads on {}",
                    config.model.encoding.to_string(), nn::parameter_count(config.model),
                    row.batch_size, size.height, size.width, config.threads, config.device));
    terminal.table({{"attention", "images/s", "step", "data", "forward", "backward", "optimiser"},
                    table_row("fused", row, row.fused),
                    table_row("reference", row, row.reference)});
    terminal.print(fmt::format("fused is {:.2f} times faster than reference", ratio));
    if (!json_.empty()) write_json(config, row, ratio);
    return kExitSuccess;
  }

 private:
  void write_json(const train::RunConfig& config, const TrainRow& row, double ratio) const {
    const Json json{{"encoding", config.model.encoding.to_string()},
                    {"parameters", nn::parameter_count(config.model)},
                    {"batch_size", row.batch_size},
                    {"threads", config.threads},
                    {"device", config.device},
                    {"fused", json_of(row, row.fused)},
                    {"reference", json_of(row, row.reference)},
                    {"ratio", ratio}};
    io::AtomicFile file(json_);
    file.write(json.dump(2) + "\n");
    file.commit();
  }

  RunOptions options_;
  std::string encoding_;
  int rounds_ = 8;
  std::string json_;
};

}  // namespace

std::unique_ptr<Command> make_train_benchmark() {
  return std::make_unique<TrainBenchmark>();
}

}  // namespace sape2::cli
