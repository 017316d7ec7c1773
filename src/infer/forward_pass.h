#pragma once

#include "sape2/infer/session.h"
#include "sape2/kernels/scratch_pool.h"

#include "infer/network.h"

#include <functional>
#include <vector>

namespace sape2::infer {

/// The memory of a session's intermediate results; it grows and never shrinks.
struct Buffers {
  std::vector<float> tokens;    ///< (images, tokens, width)
  std::vector<float> qkv;       ///< (images, tokens, 3 · width)
  std::vector<float> attended;  ///< (images, tokens, width)
  kernels::ScratchPool scratch;
};

/// Called after each layer's q and k are made, before they attend.
using LayerWatcher = std::function<void(std::int64_t layer)>;

/// One batch on its way through a network.
///
/// Work is cut into pieces, each some tokens of one image. Between two attentions tokens do not
/// meet, so a piece goes through everything that lies there, from the projection of one attention
/// to q, k and v of the next, in one go and in the cache: threads wait for each other twice a
/// layer.
class ForwardPass {
 public:
  ForwardPass(const Network& network, const GridPlan& plan, Buffers& buffers,
              const kernels::Executor& executor, const ImageBatch& images);

  /// Memory for such a batch, taken where there is not enough.
  static void reserve(const Network& network, const Grid& grid, std::int64_t images,
                      Buffers& buffers);

  void run(float* logits, const LayerWatcher& watcher = {}) const;

  /// Blocks of scratch memory that one thread has at most.
  static constexpr int kBlocksOfAThread = 2;

 private:
  /// Tokens [begin, end) of an image.
  struct Piece {
    std::int64_t image, begin, end;
    std::int64_t count() const { return end - begin; }
  };
  class Scratch;

  void for_each_piece(void (ForwardPass::*step)(const Piece&, std::int64_t layer) const,
                      std::int64_t layer) const;
  Piece piece(std::int64_t index) const;

  void embed(const Piece& piece, std::int64_t layer) const;
  void attend(std::int64_t layer) const;
  void after_attention(const Piece& piece, std::int64_t layer) const;
  void make_qkv(const Piece& piece, std::int64_t layer, float* scratch) const;
  void classify(std::int64_t image, float* logits) const;

  /// A linear layer in the network's arithmetic.
  void multiply(const Linear& layer, std::int64_t rows, kernels::ConstRows x, kernels::Rows y,
                const kernels::LinearEpilogue& epilogue) const;
  void copy_patches(const Piece& piece, float* out) const;
  float* tokens(const Piece& piece) const;
  std::int64_t scratch_floats() const;

  const Network& network_;
  const nn::ViTConfig& vit_;
  const GridPlan& plan_;
  Buffers& buffers_;
  const kernels::Executor& executor_;
  ImageBatch images_;
  std::int64_t pieces_;  // of each image
};

}  // namespace sape2::infer
