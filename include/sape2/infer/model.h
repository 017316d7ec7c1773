#pragma once

#include "sape2/nn/model_config.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

/// Inference without LibTorch: a model file in, logits out.
///
///     const auto model = sape2::infer::Model::open("model.safetensors");
///     sape2::infer::Session session(model);
///     std::vector<float> logits(model.config().vit.classes);
///     session.run({pixels, 1, 32, 32}, logits);
///
/// It computes what nn::ViT computes in evaluation, with every encoding, pooling and grid, and
/// needs nothing but the C++ library. Every mistake is an Error of one sentence.
namespace sape2::infer {

class Network;

/// The numbers that matrix products multiply; sums are float32 always.
enum class Arithmetic : std::uint8_t {
  /// The weights as the file has them, and activations of float32: the logits of nn::ViT.
  float32,
  /// Weights and activations rounded to bfloat16's eight significant bits, multiplied by AMX or by
  /// AVX-512 BF16 if the CPU has them; the logits carry that rounding. On other CPUs the same as
  /// `float32`.
  bfloat16,
};

struct ModelOptions {
  Arithmetic arithmetic = Arithmetic::float32;
};

/// A model with its weights arranged for this CPU. It never changes, so that any number of sessions
/// on any number of threads may use it; copies share the weights.
class Model {
 public:
  /// Reads a model file, as `sape2 train` and io::save_model() write it. The file is needed during
  /// the call only. Throws Error with one sentence if it is no model file, if a tensor is missing,
  /// unexpected or of another shape than its configuration asks for, if its checksum does not fit,
  /// or if a weight is not finite.
  static Model open(const std::filesystem::path& path, const ModelOptions& options = {});

  /// The same for a file that is in memory already, which is needed during the call only.
  /// `name` is what messages call it.
  static Model from_memory(std::span<const std::byte> file, std::string_view name,
                           const ModelOptions& options = {});

  /// Architecture, encoding, names of the classes, mean and deviation.
  const nn::ModelConfig& config() const;

  /// Memory that the weights take, in bytes.
  std::size_t bytes() const;

  /// What this model multiplies: what was asked for, as far as the CPU has it.
  Arithmetic arithmetic() const;

  /// What the sessions run; its definition is no part of the interface.
  const Network& network() const { return *network_; }

 private:
  explicit Model(std::shared_ptr<const Network> network) : network_(std::move(network)) {}

  std::shared_ptr<const Network> network_;
};

}  // namespace sape2::infer
