#pragma once

#include "sape2/infer/session.h"
#include "sape2/kernels/scratch_pool.h"

#include "infer/activations.h"
#include "infer/network.h"

#include <functional>

namespace sape2::infer {

/// Called after each layer's q and k are made, before they attend; and once more, with the number
/// of layers, when the tokens are what the head sees.
using LayerWatcher = std::function<void(std::int64_t layer, const Activations& activations)>;

/// Images on their way through a network.
///
/// Work is cut into pieces, each some tokens of one image. Between two attentions tokens do not
/// meet, so a piece goes through everything that lies there, from the projection of one attention
/// to q, k and v of the next, in one go and in the cache: threads wait for each other twice a
/// layer.
class ForwardPass {
 public:
  ForwardPass(const Network& network, const GridPlan& plan, const Activations& activations,
              kernels::ScratchPool& scratch, const kernels::Executor& executor,
              const ImageBatch& images);

  void run(float* logits, const LayerWatcher& watcher = {}) const;

  /// Blocks of scratch memory that one thread has at most.
  static constexpr int kBlocksOfAThread = 2;

 private:
  /// Tokens [begin, end) of an image.
  struct Piece {
    std::int64_t image, begin, end;
    std::int64_t count() const { return end - begin; }
  };

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
  Activations activations_;
  kernels::ScratchPool& scratch_;
  const kernels::Executor& executor_;
  ImageBatch images_;
  std::int64_t pieces_;  // of each image
};

}  // namespace sape2::infer
