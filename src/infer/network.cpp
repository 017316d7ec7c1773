#include "infer/network.h"

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"
#include "sape2/io/model_file.h"

#include "io/model_tensors.h"

namespace sape2::infer {
namespace {

LayerNorm take_norm(Weights& weights, const std::string& name, std::int64_t width) {
  return {weights.floats(name + ".weight", {width}), weights.floats(name + ".bias", {width})};
}

Linear take_linear(Weights& weights, const std::string& name, std::int64_t outputs,
                   std::int64_t inputs) {
  return {weights.packed(name + ".weight", {outputs, inputs}),
          weights.floats(name + ".bias", {outputs})};
}

Block take_block(Weights& weights, const nn::ViTConfig& vit, std::int64_t layer,
                 const Encoding& encoding) {
  const std::string name = "blocks." + std::to_string(layer) + ".";
  Block block;
  block.norm1 = take_norm(weights, name + "norm1", vit.width);
  block.norm2 = take_norm(weights, name + "norm2", vit.width);
  block.qkv = take_linear(weights, name + "attn.qkv", 3 * vit.width, vit.width);
  block.proj = take_linear(weights, name + "attn.proj", vit.width, vit.width);
  block.fc1 = take_linear(weights, name + "mlp.fc1", vit.mlp_width(), vit.width);
  block.fc2 = take_linear(weights, name + "mlp.fc2", vit.width, vit.mlp_width());
  if (vit.layer_scale) {
    block.scale1 = weights.floats(name + "ls1.gamma", {vit.width});
    block.scale2 = weights.floats(name + "ls2.gamma", {vit.width});
  }
  block.encoding = encoding.make_layer(weights, name + "attn.pos.");
  return block;
}

std::vector<float> take_prefix(Weights& weights, const nn::ViTConfig& vit) {
  std::vector<float> tokens;
  const auto append = [&](const char* name, std::int64_t count) {
    if (count == 0) return;
    const std::vector<float> more = weights.floats(name, {1, count, vit.width});
    tokens.insert(tokens.end(), more.begin(), more.end());
  };
  append("cls_token", vit.pooling == nn::Pooling::class_token ? 1 : 0);
  append("reg_token", vit.registers);
  return tokens;
}

nn::ModelConfig checked_config(const io::SafetensorsFile& file) {
  nn::ModelConfig config = io::read_model_config(file);
  io::check_depth(file, config);
  if (config.vit.head_size() > kernels::kMaxHeadSize) {
    throw Error(in_quotes(file.path()) + " has heads of " + std::to_string(config.vit.head_size()) +
                " channels, of which this runtime serves at most " +
                std::to_string(kernels::kMaxHeadSize));
  }
  return config;
}

// All weights once. Padding may make them a little larger: what finds no room has memory of its
// own.
std::size_t bytes_of(const io::SafetensorsFile& file) {
  std::size_t bytes = 0;
  for (const io::TensorView& tensor : file.tensors()) bytes += tensor.bytes.size();
  return bytes;
}

}  // namespace

Network::Network(const io::SafetensorsFile& file, const ModelOptions& options)
    : packed(bytes_of(file)), config_(checked_config(file)) {
  const nn::ViTConfig& vit = config_.vit;
  if (options.arithmetic == Arithmetic::bfloat16 && kernels::has_bfloat16_products()) {
    arithmetic_ = Arithmetic::bfloat16;
  }
  Weights weights(file, arithmetic_ == Arithmetic::bfloat16, packed);
  prefix_tokens = take_prefix(weights, vit);
  encoding_ = make_encoding(config_.encoding, vit.encoding_shape(), vit.depth, weights);
  patch_embed = {
      weights.packed("patch_embed.proj.weight",
                     {vit.width, vit.channels, vit.patch_size.height, vit.patch_size.width}),
      weights.floats("patch_embed.proj.bias", {vit.width})};
  for (std::int64_t layer = 0; layer < vit.depth; ++layer) {
    blocks.push_back(take_block(weights, vit, layer, *encoding_));
  }
  const bool pools = config_.head() == nn::Head::image;
  if (pools && vit.pooling == nn::Pooling::mean) {
    fc_norm = take_norm(weights, "fc_norm", vit.width);
  } else {
    norm = take_norm(weights, "norm", vit.width);
  }
  if (pools && vit.pooling == nn::Pooling::sequence) {
    pool_weight = weights.floats("seq_pool.weight", {1, vit.width});
    // A softmax does not see what is added to all its numbers.
    weights.floats("seq_pool.bias", {1});
  }
  head = take_linear(weights, "head", vit.classes, vit.width);
  weights.refuse_others();
  io::check_weights(file);
}

std::int64_t Network::logits_on(const Grid& grid) const {
  return config_.vit.classes * (config_.head() == nn::Head::pixels ? grid.patches() : 1);
}

GridPlan Network::plan(const Grid& grid) const {
  GridPlan plan{grid, encoding_->added_to_embedding(grid), encoding_->added_in_layers(grid), {}};
  for (const Block& block : blocks) plan.layers.push_back(block.encoding->on(grid));
  return plan;
}

std::size_t Network::bytes() const {
  std::size_t sum = patch_embed.weights.bytes() + head.weights.bytes();
  for (const Block& block : blocks) {
    for (const Linear* linear : {&block.qkv, &block.proj, &block.fc1, &block.fc2}) {
      sum += linear->weights.bytes() + linear->bias.size() * sizeof(float);
    }
  }
  return sum;
}

}  // namespace sape2::infer
