#include "sape2/io/atomic_file.h"
#include "sape2/nn/vit.h"

#include "cli/bench/benchmarks.h"
#include "cli/bench/train/train_measure.h"
#include "cli/output_file.h"
#include "cli/program.h"
#include "cli/terminal.h"
#include "cli/train/run_options.h"
#include "cli/whole_number.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace sape2::cli {
namespace {

using Json = nlohmann::ordered_json;

std::vector<std::string> table_row(const std::string& name, const TrainRow& row,
                                   const StepTime& step) {
  const int digits = step.total() < 100 ? 2 : 1;
  const auto part = [&](double time) {
    return fmt::format("{:.{}f} ms ({:.0f} %)", time, digits, 100 * time / step.total());
  };
  return {name,
          fmt::format("{:.1f}", row.images_per_second(step)),
          fmt::format("{:.{}f} ms", step.total(), digits),
          part(step.data),
          part(step.forward),
          part(step.backward),
          part(step.optimizer)};
}

double gpu_images_per_second(const TrainRow& row) {
  return 1000 * static_cast<double>(row.batch_size) / row.gpu->step;
}

std::string gpu_sentence(const TrainRow& row) {
  const GpuFigures& gpu = *row.gpu;
  return fmt::format(
      "whole steps in a row, batches made meanwhile: {:.3f} ms, {:.0f} images/s, {:.0f} MiB at "
      "most; "
      "{:.0f} TFLOP/s of matrix work, {:.0f} % of the {:.0f} that one large product reaches",
      gpu.step, gpu_images_per_second(row), static_cast<double>(gpu.peak_bytes) / (1 << 20),
      gpu.teraflops, 100 * gpu.teraflops / gpu.ceiling, gpu.ceiling);
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
    return "Images a second in training, and where the time of a step goes";
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
    refuse_to_overwrite(json_, {options_.recipe()});
    if (!encoding_.empty()) nn::EncodingSpec::parse(encoding_);  // before data is read
    const train::RunData data = options_.load_data();
    const train::RunConfig config = options_.make_config(data.train, encoding_);
    const TrainRow row = measure_training(config, data.train, rounds_);
    const nn::Size2d size = config.model.vit.image_size;
    terminal.heading(
        fmt::format("{} with {} parameters, {} images of {}×{} a step, {} threads on {}",
                    config.model.encoding.to_string(), nn::parameter_count(config.model),
                    row.batch_size, size.height, size.width, config.threads, config.device));
    std::vector<std::vector<std::string>> table{
        {"attention", "images/s", "step", "data", "forward", "backward", "optimiser"},
        table_row("fused", row, row.fused)};
    if (row.reference) table.push_back(table_row("reference", row, *row.reference));
    terminal.table(table);
    if (row.reference) {
      terminal.print(fmt::format("fused is {:.2f} times faster than reference",
                                 row.reference->total() / row.fused.total()));
    }
    if (row.gpu) terminal.print(gpu_sentence(row));
    if (!json_.empty()) write_json(config, row);
    return kExitSuccess;
  }

 private:
  void write_json(const train::RunConfig& config, const TrainRow& row) const {
    Json json{{"encoding", config.model.encoding.to_string()},
              {"parameters", nn::parameter_count(config.model)},
              {"batch_size", row.batch_size},
              {"threads", config.threads},
              {"device", config.device},
              {"precision", config.recipe.precision},
              {"fused", json_of(row, row.fused)}};
    if (row.reference) {
      json["reference"] = json_of(row, *row.reference);
      json["ratio"] = row.reference->total() / row.fused.total();
    }
    if (row.gpu) {
      json["gpu"] = {{"step_ms", row.gpu->step},
                     {"images_per_second", gpu_images_per_second(row)},
                     {"teraflops", row.gpu->teraflops},
                     {"ceiling_teraflops", row.gpu->ceiling},
                     {"peak_bytes", row.gpu->peak_bytes}};
    }
    io::write_file(json_, json.dump(2) + "\n");
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
