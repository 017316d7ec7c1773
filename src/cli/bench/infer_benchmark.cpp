#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"
#include "sape2/data/image.h"
#include "sape2/io/atomic_file.h"
#include "sape2/io/model_file.h"
#include "sape2/io/tensor_file.h"
#include "sape2/nn/presets.h"
#include "sape2/nn/vit.h"

#include "cli/bench/infer_contestant.h"
#include "cli/bench/worker_process.h"
#include "cli/command.h"
#include "cli/limits.h"
#include "cli/program.h"
#include "cli/progress_line.h"
#include "cli/terminal.h"
#include "cli/threads.h"
#include "cli/whole_number.h"

#include <ATen/ATen.h>
#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <sstream>
#include <thread>

namespace sape2::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::int64_t kBatches[] = {1, 8, 64};
constexpr std::int64_t kComparedImages = 8;
constexpr double kTurnMilliseconds = 150;  // of one contestant, before the next has its turn
constexpr int kMostCalls = 40;
constexpr double kInitialSpread = 0.02;
// Threads of the contestant before may still spin.
constexpr auto kPause = std::chrono::milliseconds(30);

/// A preset at a size, written PRESET:SIZE/PATCH.
struct InferCase {
  std::string text;
  nn::ViTConfig vit;

  static InferCase parse(const std::string& text) {
    std::istringstream words(text);
    std::string preset;
    std::int64_t size = 0, patch = 4;
    char slash = '/';
    std::getline(words, preset, ':');
    words >> size;
    if (!words.fail() && !words.eof()) words >> slash >> patch;
    if (words.fail() || !words.eof() || slash != '/' || size < 1 || size > kLargestImage) {
      throw Error("the model " + in_quotes(text) +
                  " is not written PRESET:SIZE/PATCH, as in vit-small:224/16");
    }
    InferCase result{text, nn::preset(preset).config};
    result.vit.image_size = {size, size};
    result.vit.patch_size = {patch, patch};
    return result;
  }
};

/// A folder that goes with the object.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (fs::temp_directory_path() / "sape2-bench-XXXXXX").native();
    if (::mkdtemp(name.data()) == nullptr) {
      throw Error("cannot create a folder in " + in_quotes(fs::temp_directory_path()));
    }
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  fs::path operator/(const char* name) const { return path_ / name; }

 private:
  fs::path path_;
};

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

/// What was found out about one contestant.
struct InferRow {
  std::string name;
  std::map<std::int64_t, double> milliseconds;  ///< by batch, medians
  std::optional<StartUp> start_up;
  std::int64_t bytes_on_disk = 0;
  double difference = 0;
};

class InferBenchmark : public Command {
 public:
  std::string name() const override { return "infer"; }
  std::string summary() const override {
    return "The runtime without LibTorch beside LibTorch, ONNX Runtime and PyTorch, in one run";
  }

  void declare(CLI::App& app) override {
    app.add_option("--models", models_,
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
        "Weights are random: they do not change the speed.\n\n"
        "  sape2 bench infer --peers 'python3 bench/infer/peers.py' --json infer.json");
  }

  int run(Terminal& terminal) override {
    std::vector<InferCase> cases;
    for (const std::string& text : models_) cases.push_back(InferCase::parse(text));
    const nn::EncodingSpec encoding = nn::EncodingSpec::parse(encoding_);
    Json report = Json::array();
    for (const InferCase& wanted : cases) {
      const std::vector<InferRow> rows = measure(wanted, encoding);
      print(terminal, wanted, rows);
      report.push_back(json_of(wanted, rows));
    }
    if (!json_.empty()) {
      io::AtomicFile file(json_);
      file.write(report.dump(2) + "\n");
      file.commit();
    }
    return kExitSuccess;
  }

 private:
  std::vector<InferRow> measure(const InferCase& wanted, const nn::EncodingSpec& encoding) const {
    const TemporaryFolder folder;
    const InferSubject subject = make_subject(wanted, encoding, folder);
    auto contestants = make_contestants(subject);
    std::vector<InferRow> rows;
    for (const auto& contestant : contestants) {
      rows.push_back({contestant->name(), {}, {}, contestant->bytes_on_disk(),
                      contestant->difference()});
    }
    ProgressLine progress("bench infer " + wanted.text, std::size(kBatches) + 1);
    for (const std::int64_t batch : kBatches) {
      progress.begin(fmt::format("batch {}", batch));
      measure_batch(contestants, batch, rows);
    }
    progress.begin("start-up");
    measure_start_up(contestants, rows);
    return rows;
  }

  InferSubject make_subject(const InferCase& wanted, const nn::EncodingSpec& encoding,
                            const TemporaryFolder& folder) const {
    const at::NoGradGuard no_grad;
    InferSubject subject;
    subject.threads = threads_in_use();
    nn::ModelConfig config;
    config.vit = wanted.vit;
    config.encoding = encoding;
    subject.vit = std::make_shared<nn::ViT>(config);
    // Heads start at zero, which would make all logits equal.
    at::manual_seed(1);
    for (at::Tensor& parameter : subject.vit->parameters()) {
      parameter.add_(at::randn_like(parameter), kInitialSpread);
    }
    subject.vit->eval();
    const auto [height, width] = wanted.vit.image_size;
    subject.images = at::randn({kComparedImages, wanted.vit.channels, height, width});
    subject.model = folder / "model.safetensors";
    io::save_model(subject.model, *subject.vit);
    write_picture(wanted, folder, subject);
    infer::Session session(infer::Model::open(subject.model), {.threads = subject.threads});
    subject.logits = at::empty({kComparedImages, wanted.vit.classes});
    session.run({subject.images.data_ptr<float>(), kComparedImages, height, width},
                {subject.logits.data_ptr<float>(), static_cast<std::size_t>(subject.logits.numel())});
    if (!peers_.empty()) {
      subject.expected = folder / "expected.safetensors";
      io::save_tensors(subject.expected, {{"images", subject.images}, {"logits", subject.logits}});
      subject.onnx = folder / "model.onnx";
      run_to_end({own_program(), "export", subject.model, "-o", subject.onnx});
    }
    return subject;
  }

  static void write_picture(const InferCase& wanted, const TemporaryFolder& folder,
                            InferSubject& subject) {
    const auto [height, width] = wanted.vit.image_size;
    data::Image picture{height, width, 3, {}};
    for (std::int64_t i = 0; i < height * width * 3; ++i) {
      picture.pixels.push_back(static_cast<std::uint8_t>(i * 37 % 251));
    }
    subject.picture = folder / "picture.png";
    data::write_png(subject.picture, picture);
  }

  static fs::path own_program() { return fs::read_symlink("/proc/self/exe"); }

  std::vector<std::unique_ptr<InferContestant>> make_contestants(
      const InferSubject& subject) const {
    const fs::path program = own_program();
    const fs::path predict = program.parent_path() / "sape2-predict";
    std::vector<std::unique_ptr<InferContestant>> contestants;
    contestants.push_back(make_runtime(subject, infer::Arithmetic::float32, predict));
    if (infer::Model::open(subject.model, {infer::Arithmetic::bfloat16}).arithmetic() ==
        infer::Arithmetic::bfloat16) {
      contestants.push_back(make_runtime(subject, infer::Arithmetic::bfloat16, predict));
    }
    contestants.push_back(make_libtorch(subject, program));
    if (!peers_.empty()) {
      std::istringstream words(peers_);
      const std::vector<std::string> command{std::istream_iterator<std::string>(words), {}};
      for (const char* peer : {"onnxruntime", "sdpa", "compile"}) {
        contestants.push_back(make_peer(subject, command, peer));
      }
    }
    return contestants;
  }

  void measure_batch(std::vector<std::unique_ptr<InferContestant>>& contestants,
                     std::int64_t batch, std::vector<InferRow>& rows) const {
    std::vector<std::vector<double>> times(contestants.size());
    std::vector<int> calls;
    for (const auto& contestant : contestants) {
      contestant->milliseconds(batch, 1);  // warm up: threads, caches, memory
      const double once = contestant->milliseconds(batch, 1).front();
      calls.push_back(std::clamp(static_cast<int>(kTurnMilliseconds / once), 1, kMostCalls));
    }
    for (int round = 0; round < rounds_; ++round) {
      for (std::size_t i = 0; i < contestants.size(); ++i) {
        std::this_thread::sleep_for(kPause);
        const auto turn = contestants[i]->milliseconds(batch, calls[i]);
        times[i].insert(times[i].end(), turn.begin(), turn.end());
      }
    }
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i].milliseconds[batch] = median(times[i]);
  }

  void measure_start_up(std::vector<std::unique_ptr<InferContestant>>& contestants,
                        std::vector<InferRow>& rows) const {
    std::vector<std::vector<double>> times(contestants.size());
    for (int round = 0; round < rounds_; ++round) {
      for (std::size_t i = 0; i < contestants.size(); ++i) {
        const auto start = contestants[i]->start_up();
        if (!start) continue;
        times[i].push_back(start->milliseconds);
        rows[i].start_up = StartUp{median(times[i]), start->peak_bytes};
      }
    }
  }

  static std::string images_per_second(const InferRow& row, std::int64_t batch) {
    return fmt::format("{:.0f}", 1000 * static_cast<double>(batch) / row.milliseconds.at(batch));
  }

  void print(const Terminal& terminal, const InferCase& wanted,
             const std::vector<InferRow>& rows) const {
    terminal.heading(fmt::format("{} with {}, {} threads, float32", wanted.text, encoding_,
                                 threads_in_use()));
    std::vector<std::vector<std::string>> table{{"", "one image", "8: images/s", "64: images/s",
                                                 "times the runtime: 1, 8, 64", "start-up",
                                                 "memory", "on disk", "logits differ by"}};
    for (const InferRow& row : rows) {
      std::string ratios;
      for (const std::int64_t batch : kBatches) {
        ratios += fmt::format("{}{:.2f}", ratios.empty() ? "" : ", ",
                              row.milliseconds.at(batch) / rows.front().milliseconds.at(batch));
      }
      const auto& start = row.start_up;
      table.push_back(
          {row.name, fmt::format("{:.3f} ms", row.milliseconds.at(1)), images_per_second(row, 8),
           images_per_second(row, 64), ratios,
           start ? fmt::format("{:.1f} ms", start->milliseconds) : "–",
           start ? fmt::format("{:.0f} MiB", static_cast<double>(start->peak_bytes) / (1 << 20))
                 : "–",
           fmt::format("{:.1f} MB", static_cast<double>(row.bytes_on_disk) / 1e6),
           fmt::format("{:.1e}", row.difference)});
    }
    terminal.table(table);
  }

  Json json_of(const InferCase& wanted, const std::vector<InferRow>& rows) const {
    Json contestants = Json::array();
    for (const InferRow& row : rows) {
      Json one{{"name", row.name}, {"bytes_on_disk", row.bytes_on_disk},
               {"difference", row.difference}};
      for (const auto& [batch, time] : row.milliseconds) {
        one[fmt::format("batch_{}_ms", batch)] = time;
        one[fmt::format("batch_{}_ratio", batch)] = time / rows.front().milliseconds.at(batch);
      }
      if (row.start_up) {
        one["start_ms"] = row.start_up->milliseconds;
        one["peak_bytes"] = row.start_up->peak_bytes;
      }
      contestants.push_back(std::move(one));
    }
    return {{"model", wanted.text},
            {"encoding", encoding_},
            {"threads", threads_in_use()},
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
