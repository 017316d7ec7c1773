#include "cli/bench/infer/infer_measure.h"

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"
#include "sape2/data/image.h"
#include "sape2/infer/session.h"
#include "sape2/io/model_file.h"
#include "sape2/io/tensor_file.h"
#include "sape2/nn/presets.h"
#include "sape2/nn/vit.h"

#include "cli/bench/infer/product_floor.h"
#include "cli/bench/infer/worker_process.h"
#include "cli/bench/progress_line.h"
#include "cli/limits.h"
#include "cli/threads.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <sstream>
#include <thread>

namespace sape2::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kComparedImages = 8;
constexpr double kTurnMilliseconds = 150;  // of one contestant, before the next has its turn
constexpr int kMostCalls = 40;
constexpr double kInitialSpread = 0.02;
// Threads of the contestant before may still spin.
constexpr auto kPause = std::chrono::milliseconds(30);

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

void write_picture(const InferCase& wanted, const TemporaryFolder& folder, InferSubject& subject) {
  const auto [height, width] = wanted.vit.image_size;
  data::Image picture{height, width, 3, {}};
  for (std::int64_t i = 0; i < height * width * 3; ++i) {
    picture.pixels.push_back(static_cast<std::uint8_t>(i * 37 % 251));
  }
  subject.picture = folder / "picture.png";
  data::write_png(subject.picture, picture);
}

fs::path own_program() {
  return fs::read_symlink("/proc/self/exe");
}

InferSubject make_subject(const InferCase& wanted, const nn::EncodingSpec& encoding,
                          const TemporaryFolder& folder, bool with_peers) {
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
  if (with_peers) {
    subject.expected = folder / "expected.safetensors";
    io::save_tensors(subject.expected, {{"images", subject.images}, {"logits", subject.logits}});
    subject.onnx = folder / "model.onnx";
    run_to_end({own_program(), "export", subject.model, "-o", subject.onnx});
  }
  return subject;
}

std::vector<std::unique_ptr<InferContestant>> make_contestants(const InferSubject& subject,
                                                               const std::string& peers) {
  const fs::path program = own_program();
  const fs::path predict = program.parent_path() / "sape2-predict";
  std::vector<std::unique_ptr<InferContestant>> contestants;
  contestants.push_back(make_runtime(subject, infer::Arithmetic::float32, predict));
  if (infer::Model::open(subject.model, {infer::Arithmetic::bfloat16}).arithmetic() ==
      infer::Arithmetic::bfloat16) {
    contestants.push_back(make_runtime(subject, infer::Arithmetic::bfloat16, predict));
  }
  contestants.push_back(make_libtorch(subject, program));
  if (!peers.empty()) {
    std::istringstream words(peers);
    const std::vector<std::string> command{std::istream_iterator<std::string>(words), {}};
    for (const char* peer : {"onnxruntime", "sdpa", "compile"}) {
      contestants.push_back(make_peer(subject, command, peer));
    }
  }
  return contestants;
}

void measure_batch(std::vector<std::unique_ptr<InferContestant>>& contestants, std::int64_t batch,
                   int rounds, std::vector<InferRow>& rows) {
  std::vector<std::vector<double>> times(contestants.size());
  std::vector<int> calls;
  for (const auto& contestant : contestants) {
    contestant->milliseconds(batch, 1);  // warm up: threads, caches, memory
    const double once = contestant->milliseconds(batch, 1).front();
    calls.push_back(std::clamp(static_cast<int>(kTurnMilliseconds / once), 1, kMostCalls));
  }
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < contestants.size(); ++i) {
      std::this_thread::sleep_for(kPause);
      const auto turn = contestants[i]->milliseconds(batch, calls[i]);
      times[i].insert(times[i].end(), turn.begin(), turn.end());
    }
  }
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i].milliseconds[batch] = median(times[i]);
}

void measure_start_up(std::vector<std::unique_ptr<InferContestant>>& contestants, int rounds,
                      std::vector<InferRow>& rows) {
  std::vector<std::vector<double>> times(contestants.size());
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < contestants.size(); ++i) {
      const auto start = contestants[i]->start_up();
      if (!start) continue;
      times[i].push_back(start->milliseconds);
      rows[i].start_up = StartUp{median(times[i]), start->peak_bytes};
    }
  }
}

}  // namespace

InferCase InferCase::parse(const std::string& text) {
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

InferFigures measure_inference(const InferCase& wanted, const nn::EncodingSpec& encoding,
                               int rounds, const std::string& peers) {
  const TemporaryFolder folder;
  const InferSubject subject = make_subject(wanted, encoding, folder, !peers.empty());
  auto contestants = make_contestants(subject, peers);
  InferFigures figures;
  std::vector<InferRow>& rows = figures.rows;
  for (const auto& contestant : contestants) {
    rows.push_back(
        {contestant->name(), {}, {}, contestant->bytes_on_disk(), contestant->difference()});
  }
  ProgressLine progress("bench infer " + wanted.text, std::size(kInferBatches) + 1);
  figures.product_milliseconds = product_milliseconds(wanted.vit, subject.threads);
  for (const std::int64_t batch : kInferBatches) {
    progress.begin(fmt::format("batch {}", batch));
    measure_batch(contestants, batch, rounds, rows);
  }
  progress.begin("start-up");
  measure_start_up(contestants, rounds, rows);
  return figures;
}

}  // namespace sape2::cli
