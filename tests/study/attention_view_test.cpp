#include "study/attention_view.h"

#include "study/small_models.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

namespace sape2::study {
namespace {

at::Tensor some_images() {
  at::manual_seed(2);
  return at::randn({3, 3, 32, 32});
}

at::Tensor centred(const at::Tensor& rows) {
  return rows - rows.mean(-1, true);
}

double largest(const at::Tensor& values) {
  return values.abs().max().item<double>();
}

TEST(AttentionView, RowsOfTheAttentionSumToOne) {
  for (const char* encoding : {"none", "rope2d", "cope", "sape2-k+ape"}) {
    const auto model_held = test::small_model(encoding);
    nn::ViT& model = *model_held;
    const ModelView view = view_model(model, some_images());
    ASSERT_EQ(view.layers.size(), 2u) << encoding;
    for (const LayerView& layer : view.layers) {
      EXPECT_EQ(layer.attention.sizes(), at::IntArrayRef({3, 2, 64, 64})) << encoding;
      EXPECT_LT(largest(layer.attention.sum(3) - 1), 1e-5) << encoding;
    }
  }
}

TEST(AttentionView, WithoutPositionsThereIsNoBias) {
  const auto model_held = test::small_model("ape");
  nn::ViT& model = *model_held;
  for (const LayerView& layer : view_model(model, some_images()).layers) {
    EXPECT_LT(largest(layer.bias), 1e-4);
    EXPECT_LT(largest(layer.attention - layer.content), 1e-5);
  }
}

// The bias read off the attention is the one that the operator says it adds.
TEST(AttentionView, FindsTheBiasOfTheOperator) {
  const auto model_held = test::small_model("sape2-rel-k[gates=fixed,gain=-1]");
  nn::ViT& model = *model_held;
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> expected;
  const auto parameters = model.named_parameters();
  model.forward_features(some_images(), [&](const nn::LayerEncoding&, const at::Tensor& q,
                                            const at::Tensor& k) {
    const std::string place = "blocks." + std::to_string(expected.size()) + ".attn.pos.";
    const ops::VectorOptions options{"k", "between", {}, at::full({}, 2.0f)};
    expected.push_back(-ops::sape2_bias(q, k, parameters[place + "ex"], parameters[place + "ey"],
                                        {8, 8, 0}, options, "direct"));
  });
  const ModelView view = view_model(model, some_images());
  ASSERT_EQ(expected.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_GT(largest(expected[i]), 0.1);
    EXPECT_LT(largest(view.layers[i].bias - centred(expected[i])), 2e-3) << "layer " << i;
  }
}

TEST(AttentionView, LeavesPrefixTokensOut) {
  nn::ModelConfig config;
  config.vit.depth = 1;
  config.vit.width = 16;
  config.vit.heads = 2;
  config.vit.pooling = nn::Pooling::class_token;
  config.vit.registers = 2;
  config.encoding = nn::EncodingSpec::parse("rpe");
  nn::ViT model(config);
  model.eval();
  const ModelView view = view_model(model, some_images());
  EXPECT_EQ(view.layers[0].attention.size(2), 64);
  EXPECT_EQ(view.layers[0].attention.size(3), 64);
  EXPECT_EQ(view.features.size(1), 64);
}

}  // namespace
}  // namespace sape2::study
