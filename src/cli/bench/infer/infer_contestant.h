#pragma once

#include "sape2/infer/model.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace sape2::nn {
class ViT;
}

namespace sape2::cli {

/// What a process takes from its start to the logits of one image.
struct StartUp {
  double milliseconds = 0;
  std::optional<std::int64_t> peak_bytes;
};

/// Something that runs one model, to be timed beside others.
class InferContestant {
 public:
  virtual ~InferContestant() = default;
  virtual std::string name() const = 0;

  /// The time of each of so many calls with a batch.
  virtual std::vector<double> milliseconds(std::int64_t batch, int calls) = 0;

  /// Largest distance of its logits from those of the runtime in float32.
  virtual double difference() const = 0;

  /// The program with all the libraries that it loads, without the model.
  virtual std::int64_t bytes_on_disk() const = 0;

  /// In a process of its own, with one image; nothing if there is no such program.
  virtual std::optional<StartUp> start_up() = 0;
};

/// The model that all of them run, in files, and what they are compared with.
struct InferSubject {
  std::filesystem::path model, onnx, picture, expected;
  std::shared_ptr<nn::ViT> vit;
  at::Tensor images;  ///< (B, channels, height, width), normalised
  at::Tensor logits;  ///< what the runtime in float32 gives for them
  int threads = 1;
};

/// The runtime. `predict` is the program sape2-predict.
std::unique_ptr<InferContestant> make_runtime(const InferSubject& subject,
                                              infer::Arithmetic arithmetic,
                                              const std::filesystem::path& predict);

/// nn::ViT on LibTorch, which `sape2 predict` runs. `program` is this one.
std::unique_ptr<InferContestant> make_libtorch(const InferSubject& subject,
                                               const std::filesystem::path& program);

/// A process of bench/infer/peers.py; `command` is how it is started, `peer` which it shall be.
/// Throws Error with its own words if it does not start.
std::unique_ptr<InferContestant> make_peer(const InferSubject& subject,
                                           const std::vector<std::string>& command,
                                           const std::string& peer);

}  // namespace sape2::cli
