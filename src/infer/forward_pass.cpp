#include "infer/forward_pass.h"

#include "infer/scratch.h"

#include <algorithm>
#include <cmath>

namespace sape2::infer {
namespace {

// Enough rows that weights are read rarely, few enough that their hidden numbers stay in the cache.
constexpr std::int64_t kMostRows = 64;
// Fewer would leave registers of a product unused.
constexpr std::int64_t kFewestRows = 8;

std::int64_t divided_up(std::int64_t count, std::int64_t by) {
  return (count + by - 1) / by;
}

/// Into how many pieces to cut each image, so that every thread has one and all have alike.
std::int64_t pieces_of(std::int64_t tokens, std::int64_t images, std::int64_t threads) {
  const std::int64_t most = std::max<std::int64_t>(1, tokens / kFewestRows);
  std::int64_t pieces = divided_up(tokens, kMostRows);
  if (images < threads * 4) {
    while (pieces * images % threads && pieces < most) ++pieces;
  }
  return std::min(pieces, most);
}

}  // namespace

ForwardPass::ForwardPass(const Network& network, const GridPlan& plan,
                         const Activations& activations, kernels::ScratchPool& scratch,
                         const kernels::Executor& executor, const ImageBatch& images)
    : network_(network),
      vit_(network.config().vit),
      plan_(plan),
      activations_(activations),
      scratch_(scratch),
      executor_(executor),
      images_(images),
      pieces_(pieces_of(plan.grid.tokens(), images.count, std::max(1, executor.threads()))) {}

void ForwardPass::run(float* logits, const LayerWatcher& watcher) const {
  for_each_piece(&ForwardPass::embed, 0);
  for (std::int64_t layer = 0; layer < vit_.depth; ++layer) {
    if (watcher) watcher(layer, activations_);
    attend(layer);
    for_each_piece(&ForwardPass::after_attention, layer);
  }
  if (watcher) watcher(vit_.depth, activations_);
  struct {
    const ForwardPass* pass;
    float* logits;
  } call{this, logits};
  executor_.parallel_for(images_.count, [&call](std::int64_t begin, std::int64_t end) {
    const std::int64_t logits_of_image = call.pass->network_.logits_on(call.pass->plan_.grid);
    for (std::int64_t image = begin; image < end; ++image) {
      call.pass->classify(image, call.logits + image * logits_of_image);
    }
  });
}

void ForwardPass::for_each_piece(void (ForwardPass::*step)(const Piece&, std::int64_t) const,
                                 std::int64_t layer) const {
  // One reference is captured: a std::function of more would allocate.
  struct {
    const ForwardPass* pass;
    void (ForwardPass::*step)(const Piece&, std::int64_t) const;
    std::int64_t layer;
  } call{this, step, layer};
  executor_.parallel_for(images_.count * pieces_, [&call](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      (call.pass->*call.step)(call.pass->piece(i), call.layer);
    }
  });
}

ForwardPass::Piece ForwardPass::piece(std::int64_t index) const {
  const std::int64_t part = index % pieces_, tokens = plan_.grid.tokens();
  return {index / pieces_, part * tokens / pieces_, (part + 1) * tokens / pieces_};
}

float* ForwardPass::tokens(const Piece& piece) const {
  return activations_.tokens + (piece.image * plan_.grid.tokens() + piece.begin) * vit_.width;
}

std::int64_t ForwardPass::scratch_floats() const {
  const std::int64_t rows = divided_up(plan_.grid.tokens(), pieces_);
  const std::int64_t pixels = vit_.channels * vit_.patch_size.height * vit_.patch_size.width;
  return rows * std::max(pixels, vit_.width + vit_.mlp_width());
}

void ForwardPass::multiply(const Linear& layer, std::int64_t rows, kernels::ConstRows x,
                           kernels::Rows y, const kernels::LinearEpilogue& epilogue) const {
  if (network_.arithmetic() == Arithmetic::float32) {
    kernels::linear(layer.weights, rows, x, y, epilogue);
    return;
  }
  const std::int64_t inputs = layer.weights.inputs(), stride = inputs + inputs % 2;
  const Scratch scratch(scratch_, divided_up(rows * stride, 2));
  auto* rounded = static_cast<std::uint16_t*>(scratch.memory());
  kernels::round_to_bfloat16(rows, inputs, x, {rounded, stride});
  kernels::linear(layer.weights, rows, kernels::ConstRows16{rounded, stride}, y, epilogue);
}

void ForwardPass::copy_patches(const Piece& piece, float* out) const {
  const std::int64_t height = vit_.patch_size.height, width = vit_.patch_size.width;
  const std::int64_t channel = images_.height * images_.width;
  const float* image = images_.pixels + piece.image * vit_.channels * channel;
  for (std::int64_t token = piece.begin; token < piece.end; ++token) {
    const std::int64_t patch = token - plan_.grid.prefix;
    if (patch < 0) continue;
    const float* corner =
        image + patch / plan_.grid.cols * height * images_.width + patch % plan_.grid.cols * width;
    for (std::int64_t c = 0; c < vit_.channels; ++c) {
      for (std::int64_t y = 0; y < height; ++y) {
        out = std::copy_n(corner + c * channel + y * images_.width, width, out);
      }
    }
  }
}

void ForwardPass::embed(const Piece& piece, std::int64_t layer) const {
  const std::int64_t width = vit_.width, prefix = plan_.grid.prefix;
  const Scratch scratch(scratch_, scratch_floats());
  const float* added = plan_.added.empty() ? nullptr : plan_.added.data();
  float* out = tokens(piece);
  std::int64_t token = piece.begin;
  for (; token < std::min(piece.end, prefix); ++token) {
    for (std::int64_t c = 0; c < width; ++c) {
      *out++ = network_.prefix_tokens[static_cast<std::size_t>(token * width + c)] +
               (added ? added[token * width + c] : 0.0F);
    }
  }
  if (token < piece.end) {
    copy_patches(piece, scratch.floats());
    const Linear& project = network_.patch_embed;
    const std::int64_t pixels = project.weights.inputs();
    multiply(project, piece.end - token, {scratch.floats(), pixels}, {out, width},
             {.bias = project.bias.data(),
              .added = added ? added + token * width : nullptr,
              .added_stride = width});
  }
  make_qkv(piece, layer, scratch.floats());
}

void ForwardPass::make_qkv(const Piece& piece, std::int64_t layer, float* scratch) const {
  const std::int64_t width = vit_.width;
  const Block& block = network_.blocks[static_cast<std::size_t>(layer)];
  const auto& added = plan_.added_in_layers;
  kernels::ConstRows positions;
  if (!added.empty()) {
    positions = {added[static_cast<std::size_t>(layer)].data() + piece.begin * width, width};
  }
  kernels::layer_norm(block.norm1.parameters(), piece.count(), width, {tokens(piece), width},
                      {scratch, width}, positions);
  float* qkv = activations_.qkv + (piece.image * plan_.grid.tokens() + piece.begin) * 3 * width;
  multiply(block.qkv, piece.count(), {scratch, width}, {qkv, 3 * width},
           {.bias = block.qkv.bias.data()});
  const GridAttention& attention = *plan_.layers[static_cast<std::size_t>(layer)];
  const std::int64_t size = vit_.head_size();
  for (std::int64_t head = 0; head < vit_.heads; ++head) {
    const float* turns = attention.turns(head);
    if (turns == nullptr) continue;
    for (float* part : {qkv + head * size, qkv + width + head * size}) {
      kernels::rotate_pairs(piece.count(), size, {part, 3 * width},
                            {turns + piece.begin * size, size});
    }
  }
}

void ForwardPass::attend(std::int64_t layer) const {
  const std::int64_t width = vit_.width, size = vit_.head_size(), count = plan_.grid.tokens();
  const float* qkv = activations_.qkv;
  const auto view = [&](std::int64_t part) {
    return kernels::ConstView{qkv + part * width, count * 3 * width, size, 3 * width};
  };
  kernels::AttentionInputs inputs;
  inputs.shape = {images_.count,   vit_.heads,        plan_.grid.rows,
                  plan_.grid.cols, plan_.grid.prefix, size};
  inputs.scale = 1.0F / std::sqrt(static_cast<float>(size));
  inputs.q = view(0);
  inputs.k = view(1);
  inputs.v = view(2);
  inputs.scratch = &scratch_;
  kernels::AttentionOutputs outputs;
  outputs.out = {activations_.attended, count * width, size, width};
  plan_.layers[static_cast<std::size_t>(layer)]->attend(inputs, outputs, executor_);
}

void ForwardPass::after_attention(const Piece& piece, std::int64_t layer) const {
  const std::int64_t width = vit_.width, hidden = vit_.mlp_width(), rows = piece.count();
  const Block& block = network_.blocks[static_cast<std::size_t>(layer)];
  const Scratch scratch(scratch_, scratch_floats());
  float* normalised = scratch.floats();
  float* inner = normalised + rows * width;
  float* x = tokens(piece);
  const auto onto_tokens = [&](const Linear& linear, const std::vector<float>& factor) {
    return kernels::LinearEpilogue{.bias = linear.bias.data(),
                                   .factor = factor.empty() ? nullptr : factor.data(),
                                   .added = x,
                                   .added_stride = width};
  };
  const float* attended =
      activations_.attended + (piece.image * plan_.grid.tokens() + piece.begin) * width;
  kernels::fetch_rows(rows, width, {attended, width});
  multiply(block.proj, rows, {attended, width}, {x, width}, onto_tokens(block.proj, block.scale1));
  kernels::layer_norm(block.norm2.parameters(), rows, width, {x, width}, {normalised, width});
  multiply(block.fc1, rows, {normalised, width}, {inner, hidden},
           {.bias = block.fc1.bias.data(), .activation = kernels::Activation::gelu});
  multiply(block.fc2, rows, {inner, hidden}, {x, width}, onto_tokens(block.fc2, block.scale2));
  if (layer + 1 < vit_.depth) {
    make_qkv(piece, layer + 1, normalised);
  } else if (network_.norm) {
    kernels::layer_norm(network_.norm->parameters(), rows, width, {x, width}, {x, width});
  }
}

void ForwardPass::classify(std::int64_t image, float* logits) const {
  const std::int64_t width = vit_.width, patches = plan_.grid.patches();
  const float* tokens = activations_.tokens + image * plan_.grid.tokens() * width;
  const float* first = tokens + plan_.grid.prefix * width;
  if (network_.config().head() == nn::Head::pixels) {
    kernels::linear(network_.head.weights, patches, {first, width}, {logits, vit_.classes},
                    {.bias = network_.head.bias.data()});
    return;
  }
  const Scratch scratch(scratch_, width + patches);
  float* pooled = scratch.floats();
  float* weights = pooled + width;
  const float* features = pooled;
  if (vit_.pooling == nn::Pooling::class_token) {
    features = tokens;
  } else {
    const bool mean = vit_.pooling == nn::Pooling::mean;
    float sum = static_cast<float>(patches);
    if (!mean) {
      float largest = -INFINITY;
      for (std::int64_t n = 0; n < patches; ++n) {
        weights[n] = 0.0F;
        for (std::int64_t c = 0; c < width; ++c) {
          weights[n] += network_.pool_weight[static_cast<std::size_t>(c)] * first[n * width + c];
        }
        largest = std::max(largest, weights[n]);
      }
      sum = 0.0F;
      for (std::int64_t n = 0; n < patches; ++n) {
        sum += weights[n] = std::exp(weights[n] - largest);
      }
    }
    std::fill_n(pooled, width, 0.0F);
    for (std::int64_t n = 0; n < patches; ++n) {
      const float weight = mean ? 1.0F : weights[n];
      for (std::int64_t c = 0; c < width; ++c) pooled[c] += weight * first[n * width + c];
    }
    for (std::int64_t c = 0; c < width; ++c) pooled[c] /= sum;
    if (network_.fc_norm) {
      kernels::layer_norm(network_.fc_norm->parameters(), 1, width, {pooled, width},
                          {pooled, width});
    }
  }
  kernels::linear(network_.head.weights, 1, {features, width}, {logits, vit_.classes},
                  {.bias = network_.head.bias.data()});
}

}  // namespace sape2::infer
