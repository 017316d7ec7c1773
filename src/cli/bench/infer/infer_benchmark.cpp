#include "sape2/io/atomic_file.h"

#include "cli/bench/benchmarks.h"
#include "cli/bench/infer/infer_measure.h"
#include "cli/program.h"
#include "cli/terminal.h"
#include "cli/threads.h"
#include "cli/whole_number.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace sape2::cli {
namespace {

using Json = nlohmann::ordered_json;

class InferBenchmark : public Command {
 public:
  std::string name() const override { return "infer"; }
  std::string summary() const override {
    return "The runtime without LibTorch beside LibTorch, ONNX Runtime and PyTorch, in one run";
  }

  void declare(CLI::App& app) override {
    app.add_option(
           "--models", models_,
           "PRESET:SIZE/PATCH,… (default: vit-compact:32/4,vit-small:32/4,vit-small:224/16)")
        ->type_name("LIST")
        ->delimiter(',');
    app.add_option("--encoding", encoding_, "Position encoding (default: sape2-rel-k)")
        ->type_name("ENCODING");
    app.add_option("--rounds", rounds_, "Turns of every contestant (default: 7)")
        ->check(whole_number(1, 10000))
        ->type_name("N");
    app.add_option("--peers", peers_,
                   "Also measure ONNX Runtime and PyTorch: how to start bench/infer/peers.py")
        ->type_name("COMMAND");
    app.add_option("--json", json_, "Write the figures to this file too")->type_name("FILE");
    app.footer(
        "Contestants take turns, so that a noisy moment hits all of them; times are medians.\n"
        "Weights are random: they do not change the speed. Start-up and memory are of a process\n"
        "of its own that opens the model and classifies one image. The product floor is the time\n"
        "that the model's matrix products take if the cores do nothing but multiply and add.\n\n"
        "  sape2 bench infer --peers 'python3 bench/infer/peers.py' --json infer.json");
  }

  int run(Terminal& terminal) override {
    std::vector<InferCase> cases;
    for (const std::string& text : models_) cases.push_back(InferCase::parse(text));
    const nn::EncodingSpec encoding = nn::EncodingSpec::parse(encoding_);
    Json report = Json::array();
    for (const InferCase& wanted : cases) {
      const InferFigures figures = measure_inference(wanted, encoding, rounds_, peers_);
      print(terminal, wanted, figures);
      report.push_back(json_of(wanted, figures));
    }
    if (!json_.empty()) io::write_file(json_, report.dump(2) + "\n");
    return kExitSuccess;
  }

 private:
  static std::string images_per_second(const InferRow& row, std::int64_t batch) {
    return fmt::format("{:.0f}", 1000 * static_cast<double>(batch) / row.milliseconds.at(batch));
  }

  static std::string memory_text(const InferRow& row) {
    if (!row.start_up || !row.start_up->peak_bytes) return "–";
    return fmt::format("{:.0f} MiB", static_cast<double>(*row.start_up->peak_bytes) / (1 << 20));
  }

  /// How many times longer than its matrix products the runtime takes.
  static double over_products(const InferFigures& figures, std::int64_t batch) {
    return figures.rows.front().milliseconds.at(batch) /
           (static_cast<double>(batch) * figures.product_milliseconds);
  }

  void print(const Terminal& terminal, const InferCase& wanted, const InferFigures& figures) const {
    const std::vector<InferRow>& rows = figures.rows;
    terminal.heading(
        fmt::format("{} with {}, {} threads, float32", wanted.text, encoding_, threads_in_use()));
    std::vector<std::vector<std::string>> table{{"", "one image", "8: images/s", "64: images/s",
                                                 "times the runtime: 1, 8, 64", "start-up",
                                                 "memory", "on disk", "logits differ by"}};
    for (const InferRow& row : rows) {
      std::string ratios;
      for (const std::int64_t batch : kInferBatches) {
        ratios += fmt::format("{}{:.2f}", ratios.empty() ? "" : ", ",
                              row.milliseconds.at(batch) / rows.front().milliseconds.at(batch));
      }
      const auto& start = row.start_up;
      table.push_back({row.name, fmt::format("{:.3f} ms", row.milliseconds.at(1)),
                       images_per_second(row, 8), images_per_second(row, 64), ratios,
                       start ? fmt::format("{:.1f} ms", start->milliseconds) : "–",
                       memory_text(row),
                       fmt::format("{:.1f} MB", static_cast<double>(row.bytes_on_disk) / 1e6),
                       fmt::format("{:.1e}", row.difference)});
    }
    terminal.table(table);
    terminal.print(
        fmt::format("product floor: {:.3f} ms for one image; the runtime takes {:.2f}, {:.2f}, "
                    "{:.2f} times that\n",
                    figures.product_milliseconds, over_products(figures, 1),
                    over_products(figures, 8), over_products(figures, 64)));
  }

  Json json_of(const InferCase& wanted, const InferFigures& figures) const {
    const std::vector<InferRow>& rows = figures.rows;
    Json contestants = Json::array();
    for (const InferRow& row : rows) {
      Json one{
          {"name", row.name}, {"bytes_on_disk", row.bytes_on_disk}, {"difference", row.difference}};
      for (const auto& [batch, time] : row.milliseconds) {
        one[fmt::format("batch_{}_ms", batch)] = time;
        one[fmt::format("batch_{}_ratio", batch)] = time / rows.front().milliseconds.at(batch);
      }
      if (row.start_up) {
        one["start_ms"] = row.start_up->milliseconds;
        if (row.start_up->peak_bytes) one["peak_bytes"] = *row.start_up->peak_bytes;
      }
      contestants.push_back(std::move(one));
    }
    return {{"model", wanted.text},
            {"encoding", encoding_},
            {"threads", threads_in_use()},
            {"product_floor_ms", figures.product_milliseconds},
            {"contestants", contestants}};
  }

  std::vector<std::string> models_ = {"vit-compact:32/4", "vit-small:32/4", "vit-small:224/16"};
  std::string encoding_ = "sape2-rel-k", peers_, json_;
  int rounds_ = 7;
};

}  // namespace

std::unique_ptr<Command> make_infer_benchmark() {
  return std::make_unique<InferBenchmark>();
}

}  // namespace sape2::cli
