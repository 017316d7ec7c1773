#pragma once

#include "sape2/nn/encoding.h"
#include "sape2/nn/vit.h"

#include "support/error_text.h"

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace sape2::nn::testing {

/// Every registered encoding, alone; `with_ape` adds the combinations.
std::vector<std::string> all_encodings(bool with_ape = false);

/// A name GoogleTest accepts.
std::string test_name(const std::string& encoding);

using sape2::testing::error_text;

/// One layer's encoding outside of a model, in float64 and with parameters large enough to matter.
struct LayerFixture {
  explicit LayerFixture(const std::string& encoding,
                        EncodingShape shape = {
                            .width = 8, .heads = 2, .rows = 2, .cols = 3, .prefix = 1});

  at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) const {
    return layer->attend(q, k, v, grid);
  }

  EncodingShape shape;
  ops::Grid grid;
  torch::nn::Module root;
  std::set<std::string> decayed;
  std::unique_ptr<Encoding> encoding;
  std::unique_ptr<LayerEncoding> layer;
};

/// Random q, k or v for a shape's grid, `[2, heads, tokens, head size]` float64.
at::Tensor random_tokens(const EncodingShape& shape, const ops::Grid& grid, uint64_t seed);

/// Two layers of width 8 over 2×3 patches of 2×2 pixels, a class token and a register.
ModelConfig tiny_config(const std::string& encoding);

/// Float64 normal numbers from a seed.
at::Tensor random_tensor(at::IntArrayRef sizes, uint64_t seed);

/// Adds random numbers to all parameters, so that none stays at a special value such as 0.
void shake(torch::nn::Module& module, double deviation, uint64_t seed);

/// Compares each input's gradient of `loss` with central differences along random directions.
void expect_gradients(const std::function<at::Tensor()>& loss,
                      const std::vector<std::pair<std::string, at::Tensor>>& inputs);

/// The largest |a − b|.
double difference(const at::Tensor& a, const at::Tensor& b);

}  // namespace sape2::nn::testing
