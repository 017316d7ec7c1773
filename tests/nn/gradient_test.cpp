#include "nn/support.h"

#include <gtest/gtest.h>

// Gradients held against central differences, in float64, for every registered encoding.
namespace sape2::nn::testing {
namespace {

using Inputs = std::vector<std::pair<std::string, at::Tensor>>;

Inputs parameters_of(const torch::nn::Module& module) {
  Inputs inputs;
  for (const auto& parameter : module.named_parameters()) {
    inputs.emplace_back(parameter.key(), parameter.value());
  }
  return inputs;
}

void check_layer(const std::string& encoding, const ops::Grid* other_grid = nullptr) {
  LayerFixture f(encoding);
  const ops::Grid grid = other_grid ? *other_grid : f.grid;
  const auto tokens = [&](uint64_t seed) {
    return random_tokens(f.shape, grid, seed).requires_grad_(true);
  };
  const at::Tensor q = tokens(1), k = tokens(2), v = tokens(3);
  const at::Tensor weight = random_tokens(f.shape, grid, 4);
  // All that one layer does: tokens go through embed and attention_input, q, k, v through attend.
  const at::Tensor x = random_tensor({2, grid.tokens(), f.shape.width}, 5).requires_grad_(true);
  const at::Tensor x_weight = random_tensor(x.sizes(), 6);
  const auto loss = [&] {
    ForwardPass pass{grid};
    const at::Tensor embedded = f.encoding->embed(x, pass);
    const at::Tensor input = f.layer->attention_input(embedded, pass);
    return (f.layer->attend(q, k, v, grid) * weight).sum() + (input * x_weight).sum();
  };
  Inputs inputs = parameters_of(f.root);
  inputs.insert(inputs.end(), {{"q", q}, {"k", k}, {"v", v}, {"tokens", x}});
  expect_gradients(loss, inputs);
}

class EveryEncodingGradient : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryEncodingGradient, OfOneLayer) {
  check_layer(GetParam());
}

TEST_P(EveryEncodingGradient, OfOneLayerAtAnotherGrid) {
  const ops::Grid grid{4, 3, 1};
  check_layer(GetParam(), &grid);
}

TEST_P(EveryEncodingGradient, OfAWholeModel) {
  ModelConfig config = tiny_config(GetParam());
  config.vit.layer_scale = 0.5;
  ViT model(config);
  model.to(at::kDouble);
  shake(model, 0.3, 7);
  const at::Tensor images = random_tensor({2, 2, 4, 6}, 8).requires_grad_(true);
  const at::Tensor weight = random_tensor({2, 3}, 9);
  Inputs inputs = parameters_of(model);
  inputs.emplace_back("images", images);
  expect_gradients([&] { return (model.forward(images) * weight).sum(); }, inputs);
}

INSTANTIATE_TEST_SUITE_P(Encodings, EveryEncodingGradient, ::testing::ValuesIn(all_encodings(true)),
                         [](const auto& test) { return test_name(test.param); });

TEST(Sape2Gradient, OfEveryOption) {
  for (const char* encoding :
       {"sape2-q[gates=learnable]", "sape2-qk[gates=learnable,tables=per-head]",
        "sape2-k[span=between]", "sape2-k[form=direct]", "sape2-rel-k[form=distance]",
        "sape2-rel-qk[form=paths]", "sape2-rel-q[gates=open]",
        "sape2-rel-k[gates=fixed,gate-scale=1]", "sape2-k[gain=-1,gain-mode=learnable]",
        "sape2-rel-qk[gain-mode=per-head,bias=inside]", "sape2-k[M=2]", "sape2-rel-k[M=3]",
        "cope[M=3,bias=inside]"}) {
    SCOPED_TRACE(encoding);
    check_layer(encoding);
  }
}

TEST(Sape2Gradient, OfResizedTables) {
  const ops::Grid larger{4, 5, 1};
  for (const char* encoding :
       {"sape2-k[resize=extend]", "sape2-k[resize=resample]", "sape2-rel-qk[resize=extend]",
        "sape2-rel-qk[resize=resample,tables=per-head]"}) {
    SCOPED_TRACE(encoding);
    check_layer(encoding, &larger);
  }
}

}  // namespace
}  // namespace sape2::nn::testing
