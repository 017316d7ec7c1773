#include "sape2/base/error.h"
#include "sape2/io/atomic_file.h"
#include "sape2/nn/vit.h"
#include "sape2/train/device.h"
#include "sape2/train/loader_source.h"
#include "sape2/train/training_step.h"

#include "cli/bench/benchmarks.h"
#include "cli/bench/meters/stopwatch.h"
#include "cli/bench/train/train_measure.h"
#include "cli/output_file.h"
#include "cli/program.h"
#include "cli/terminal.h"
#include "cli/together/processes.h"
#include "cli/train/run_options.h"
#include "cli/whole_number.h"

#include <ATen/ATen.h>
#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>

namespace sape2::cli {
namespace {

constexpr int64_t kPieces = 8;

// Milliseconds of a step: medians over the rounds.
struct ExchangeTimes {
  double alone = 0;    // nothing is sent
  double beside = 0;   // as in training
  double after = 0;    // everything is sent once the backward pass is over
  double sending = 0;  // the sums by themselves

  // Of what sending costs without overlap.
  double hidden() const {
    const double cost = after - alone;
    return cost > 0 ? std::clamp((after - beside) / cost, 0.0, 1.0) : 1;
  }
};

enum class Way { alone, beside, after };

double median(std::vector<double> times) {
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::ranges::nth_element(times, middle);
  return *middle;
}

class Measured {
 public:
  Measured(const train::RunConfig& config, dist::Group* group, Way way)
      : model_(std::make_shared<nn::ViT>(config.model, nn::Initialisation{.seed = config.seed})),
        training_((model_->to(train::device_named(config.device)), *model_), config.recipe,
                  config.seed, way == Way::alone ? nullptr : group) {
    if (way == Way::after) training_.send_late();
  }

  double milliseconds(const train::Batch& batch, double rate) {
    return milliseconds_of([&] { training_.run(batch, rate, step_++).numbers.cpu(); });
  }

 private:
  std::shared_ptr<nn::ViT> model_;
  train::TrainingStep training_;
  int64_t step_ = 0;
};

double sending_time(dist::Group& group, int64_t elements) {
  const at::Tensor flat = at::zeros({elements}, at::device(group.device()).dtype(at::kFloat));
  return milliseconds_of([&] {
    std::vector<dist::Group::Sum> sums;
    for (const at::Tensor& piece : flat.chunk(kPieces)) sums.push_back(group.begin_sum(piece));
    for (auto& sum : sums) sum.wait();
    flat.select(0, 0).item<float>();
  });
}

class ExchangeBenchmark : public Command {
 public:
  std::string name() const override { return "exchange"; }
  std::string summary() const override {
    return "What adding up gradients over processes costs, and how much of it is hidden";
  }

  void declare(CLI::App& app) override {
    app_ = &app;
    options_.prefer_data("shapes");
    options_.declare(app);
    app.add_option("--encoding", encoding_, "Position encoding (default: sape2-rel-k)")
        ->type_name("ENCODING")
        ->group("Model");
    app.add_option("--rounds", rounds_, "Timed steps of each kind (default: 20)")
        ->check(whole_number(1, 100000))
        ->type_name("N");
    app.add_option("--json", json_, "Write the figures to this file too")->type_name("FILE");
    app.footer("  sape2 launch -n 2 bench exchange --model vit-small --batch-size 32");
  }

  int run(Terminal& terminal) override {
    Processes processes(*app_->get_parent(), dist::Loss::ends_all);
    if (processes.count() == 1) {
      throw Error(
          "bench exchange needs several processes: `sape2 launch -n 2 bench exchange`, torchrun, "
          "srun or mpirun");
    }
    refuse_to_overwrite(json_, {options_.recipe()});
    return processes.run([&] { return measure(terminal, processes); });
  }

 private:
  int measure(Terminal& terminal, Processes& processes) {
    options_.use_device(processes.device_for(options_.device()));
    const train::RunData data = options_.load_data();
    const train::RunConfig config = options_.make_config(data.train, encoding_);
    processes.agree("configuration", train::to_json_of_all(config, data));
    dist::Group& group = *processes.make_group(config.device);
    train::LoaderSource source(data.train, config, {group.rank(), group.size()});
    const train::Batch batch = source.batch(0, 0);
    const ExchangeTimes times = measure_times(config, group, batch);
    if (!processes.leads()) return kExitSuccess;
    const double megabytes = static_cast<double>(nn::parameter_count(config.model)) * 4 / 1e6;
    terminal.heading(fmt::format("{} processes ({}), {} parameters, {} images a step",
                                 processes.count(), group.library(),
                                 nn::parameter_count(config.model), source.images_per_step()));
    const auto ms = [](double time) { return fmt::format("{:.1f} ms", time); };
    terminal.table(
        {{"a step that sends nothing", ms(times.alone)},
         {"sending beside the backward pass", ms(times.beside)},
         {"sending after it", ms(times.after)},
         {fmt::format("the sums of {:.1f} MB by themselves", megabytes), ms(times.sending)},
         {"hidden", fmt::format("{:.0f} %", 100 * times.hidden())}});
    if (!json_.empty()) write_json(times, processes.count(), megabytes);
    return kExitSuccess;
  }

  // The kinds take turns, so that a machine that slows down slows all of them.
  ExchangeTimes measure_times(const train::RunConfig& config, dist::Group& group,
                              const train::Batch& batch) const {
    const double rate = config.recipe.learning_rate;
    Measured alone(config, &group, Way::alone), beside(config, &group, Way::beside),
        after(config, &group, Way::after);
    const int64_t elements = nn::parameter_count(config.model);
    std::vector<double> times[4];
    const at::Tensor together = at::zeros({1}, at::device(group.device()).dtype(at::kFloat));
    for (int64_t round = -kWarmUpSteps; round < rounds_; ++round) {
      const auto take = [&](int kind, const auto& measure) {
        group.sum(together);  // all begin at once
        together.item<float>();
        const double time = measure();
        if (round >= 0) times[kind].push_back(time);
      };
      take(0, [&] { return alone.milliseconds(batch, rate); });
      take(1, [&] { return beside.milliseconds(batch, rate); });
      take(2, [&] { return after.milliseconds(batch, rate); });
      take(3, [&] { return sending_time(group, elements); });
    }
    return {median(times[0]), median(times[1]), median(times[2]), median(times[3])};
  }

  void write_json(const ExchangeTimes& times, int processes, double megabytes) const {
    const nlohmann::ordered_json json{
        {"processes", processes},        {"gradient_megabytes", megabytes},
        {"step_alone_ms", times.alone},  {"step_beside_ms", times.beside},
        {"step_after_ms", times.after},  {"sending_ms", times.sending},
        {"hidden_share", times.hidden()}};
    io::write_file(json_, json.dump(2) + "\n");
  }

  CLI::App* app_ = nullptr;
  RunOptions options_;
  std::string encoding_;
  int64_t rounds_ = 20;
  std::string json_;
};

}  // namespace

std::unique_ptr<Command> make_exchange_benchmark() {
  return std::make_unique<ExchangeBenchmark>();
}

}  // namespace sape2::cli
