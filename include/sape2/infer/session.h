#pragma once

#include "sape2/infer/model.h"
#include "sape2/kernels/executor.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace sape2::infer {

/// Images as models take them: (count, channels, height, width), contiguous, channels as the model
/// has them, and normalised: `(pixel / 255 − mean) / deviation` for pixels of bytes, see
/// nn::ModelConfig. Height and width may differ from those trained at, as long as patches divide
/// them: the encoding adapts to the other grid, as in nn::ViT.
struct ImageBatch {
  const float* pixels = nullptr;
  std::int64_t count = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
};

struct SessionOptions {
  /// Threads of the session's own; 0: one for each core that the process may use, 1: none but the
  /// calling one.
  int threads = 0;
  /// The caller's threads instead: a ThreadPool that sessions share, or any other Executor. Must
  /// outlive the session.
  const kernels::Executor* executor = nullptr;
};

/// Runs a model. It owns the memory of its intermediate results: the first call of a size takes it,
/// later calls of that size or smaller ones of the same grid take none. A session serves one call
/// at a time; threads that run the same model at once have a session each. Results do not depend on
/// the number of threads, not by one bit, nor on which images share a batch.
class Session {
 public:
  explicit Session(Model model, const SessionOptions& options = {});
  ~Session();
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;

  const Model& model() const;

  /// Logits (count, classes) of a batch; of a model for segmentation (count, rows, cols, classes),
  /// which PixelLogits upsamples. Throws Error with one sentence if images or logits do
  /// not fit the model.
  void run(const ImageBatch& images, std::span<float> logits);
  std::vector<float> run(const ImageBatch& images);

  /// Takes the memory for such calls now.
  void prepare(std::int64_t count, std::int64_t height, std::int64_t width);

  /// Memory that the session holds beside the model, in bytes; its executor's is not counted.
  std::size_t bytes() const;

 private:
  friend class Inspection;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sape2::infer
