#include "sape2/base/error.h"
#include "sape2/infer/session.h"
#include "sape2/nn/vit.h"

#include "cli/bench/infer/infer_contestant.h"
#include "cli/bench/infer/worker_process.h"
#include "cli/bench/meters/process_memory.h"
#include "cli/bench/meters/stopwatch.h"

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include <fstream>
#include <set>

namespace sape2::cli {
namespace {

namespace fs = std::filesystem;

at::Tensor batch_of(const InferSubject& subject, std::int64_t batch) {
  const std::int64_t copies = (batch + subject.images.size(0) - 1) / subject.images.size(0);
  return subject.images.repeat({copies, 1, 1, 1}).narrow(0, 0, batch).contiguous();
}

double distance(const at::Tensor& logits, const at::Tensor& expected) {
  return (logits - expected).abs().max().item<double>();
}

std::optional<StartUp> start_of(const std::vector<std::string>& command) {
  const FinishedProcess finished = run_to_end(command);
  if (!finished.succeeded) return std::nullopt;
  return StartUp{finished.milliseconds, peak_bytes_of(command)};
}

// Every library that this process has loaded, and its program.
std::int64_t bytes_of_loaded_files() {
  std::set<std::string> files;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const std::size_t path = line.find('/');
    if (path == std::string::npos || line.find(" r-xp ") == std::string::npos) continue;
    files.insert(line.substr(path));
  }
  std::int64_t bytes = 0;
  std::error_code error;
  for (const std::string& file : files) {
    const std::uintmax_t size = fs::file_size(file, error);
    if (!error) bytes += static_cast<std::int64_t>(size);
  }
  return bytes;
}

class Runtime final : public InferContestant {
 public:
  Runtime(const InferSubject& subject, infer::Arithmetic arithmetic, fs::path predict)
      : subject_(subject),
        predict_(std::move(predict)),
        session_(infer::Model::open(subject.model, {arithmetic}), {.threads = subject.threads}) {}

  std::string name() const override {
    return session_.model().arithmetic() == infer::Arithmetic::bfloat16 ? "runtime, bfloat16"
                                                                        : "runtime";
  }

  std::vector<double> milliseconds(std::int64_t batch, int calls) override {
    const at::Tensor images = batch_of(subject_, batch);
    std::vector<float> logits(batch * subject_.logits.size(1));
    std::vector<double> times;
    for (int i = 0; i < calls; ++i) {
      times.push_back(milliseconds_of([&] {
        session_.run({images.data_ptr<float>(), batch, images.size(2), images.size(3)}, logits);
      }));
    }
    return times;
  }

  double difference() const override {
    infer::Session session(session_.model(), {.threads = 1});
    const at::Tensor& images = subject_.images;
    at::Tensor logits = at::empty_like(subject_.logits);
    session.run({images.data_ptr<float>(), images.size(0), images.size(2), images.size(3)},
                {logits.data_ptr<float>(), static_cast<std::size_t>(logits.numel())});
    return distance(logits, subject_.logits);
  }

  std::int64_t bytes_on_disk() const override {
    std::error_code error;
    const std::uintmax_t size = fs::file_size(predict_, error);
    return error ? 0 : static_cast<std::int64_t>(size);
  }

  std::optional<StartUp> start_up() override {
    if (session_.model().arithmetic() == infer::Arithmetic::bfloat16) return std::nullopt;
    return start_of({predict_, "--threads", std::to_string(subject_.threads), subject_.model,
                     subject_.picture});
  }

 private:
  const InferSubject& subject_;
  fs::path predict_;
  infer::Session session_;
};

class LibTorch final : public InferContestant {
 public:
  LibTorch(const InferSubject& subject, fs::path program)
      : subject_(subject), program_(std::move(program)) {}

  std::string name() const override { return "sape2 predict, on LibTorch"; }

  std::vector<double> milliseconds(std::int64_t batch, int calls) override {
    const at::NoGradGuard no_grad;
    const at::Tensor images = batch_of(subject_, batch);
    std::vector<double> times;
    for (int i = 0; i < calls; ++i) {
      times.push_back(milliseconds_of([&] { subject_.vit->forward(images); }));
    }
    return times;
  }

  double difference() const override {
    const at::NoGradGuard no_grad;
    return distance(subject_.vit->forward(subject_.images), subject_.logits);
  }

  std::int64_t bytes_on_disk() const override { return bytes_of_loaded_files(); }

  std::optional<StartUp> start_up() override {
    return start_of({program_, "--threads", std::to_string(subject_.threads), "predict",
                     subject_.model, subject_.picture});
  }

 private:
  const InferSubject& subject_;
  fs::path program_;
};

class Peer final : public InferContestant {
 public:
  Peer(const InferSubject& subject, std::vector<std::string> command, const std::string& peer)
      : worker_(with_arguments(subject, std::move(command), peer)),
        facts_(nlohmann::json::parse(worker_.read_line())) {}

  std::string name() const override { return facts_.at("name"); }

  std::vector<double> milliseconds(std::int64_t batch, int calls) override {
    worker_.write_line(std::to_string(batch) + " " + std::to_string(calls));
    return nlohmann::json::parse(worker_.read_line()).at("ms");
  }

  double difference() const override { return facts_.at("difference"); }
  std::int64_t bytes_on_disk() const override { return facts_.at("bytes_on_disk"); }

  // Once: what it took when it was started.
  std::optional<StartUp> start_up() override {
    return StartUp{facts_.at("start_ms"), facts_.at("peak_bytes").get<std::int64_t>()};
  }

 private:
  static std::vector<std::string> with_arguments(const InferSubject& subject,
                                                 std::vector<std::string> command,
                                                 const std::string& peer) {
    command.insert(command.end(), {peer, subject.model, subject.onnx, subject.expected,
                                   std::to_string(subject.threads)});
    return command;
  }

  WorkerProcess worker_;
  nlohmann::json facts_;
};

}  // namespace

std::unique_ptr<InferContestant> make_runtime(const InferSubject& subject,
                                              infer::Arithmetic arithmetic,
                                              const fs::path& predict) {
  return std::make_unique<Runtime>(subject, arithmetic, predict);
}

std::unique_ptr<InferContestant> make_libtorch(const InferSubject& subject,
                                               const fs::path& program) {
  return std::make_unique<LibTorch>(subject, program);
}

std::unique_ptr<InferContestant> make_peer(const InferSubject& subject,
                                           const std::vector<std::string>& command,
                                           const std::string& peer) {
  try {
    return std::make_unique<Peer>(subject, command, peer);
  } catch (const nlohmann::json::exception&) {
    throw Error("the peer " + peer + " did not answer as bench/infer/peers.py does");
  }
}

}  // namespace sape2::cli
