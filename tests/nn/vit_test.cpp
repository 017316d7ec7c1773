#include "sape2/nn/vit.h"

#include "nn/support.h"

#include <gtest/gtest.h>

#include <cmath>

namespace sape2::nn::testing {
namespace {

std::map<std::string, std::vector<int64_t>> shapes_of(const ModelConfig& config) {
  std::map<std::string, std::vector<int64_t>> shapes;
  const ViT model(config, {.kind = Initialisation::Kind::shapes_only});
  for (const auto& p : model.named_parameters()) shapes[p.key()] = p.value().sizes().vec();
  return shapes;
}

TEST(ViT, NamesItsParametersAsTimmDoes) {
  ModelConfig config = tiny_config("ape");
  config.vit.depth = 1;
  config.vit.layer_scale = 1e-5;
  const std::map<std::string, std::vector<int64_t>> expected{
      {"cls_token", {1, 1, 8}},
      {"reg_token", {1, 1, 8}},
      {"pos_embed", {1, 8, 8}},
      {"patch_embed.proj.weight", {8, 2, 2, 2}},
      {"patch_embed.proj.bias", {8}},
      {"blocks.0.norm1.weight", {8}},
      {"blocks.0.norm1.bias", {8}},
      {"blocks.0.attn.qkv.weight", {24, 8}},
      {"blocks.0.attn.qkv.bias", {24}},
      {"blocks.0.attn.proj.weight", {8, 8}},
      {"blocks.0.attn.proj.bias", {8}},
      {"blocks.0.ls1.gamma", {8}},
      {"blocks.0.norm2.weight", {8}},
      {"blocks.0.norm2.bias", {8}},
      {"blocks.0.mlp.fc1.weight", {16, 8}},
      {"blocks.0.mlp.fc1.bias", {16}},
      {"blocks.0.mlp.fc2.weight", {8, 16}},
      {"blocks.0.mlp.fc2.bias", {8}},
      {"blocks.0.ls2.gamma", {8}},
      {"norm.weight", {8}},
      {"norm.bias", {8}},
      {"head.weight", {3, 8}},
      {"head.bias", {3}},
  };
  EXPECT_EQ(shapes_of(config), expected);
}

TEST(ViT, NamesTheNormAndThePoolByThePooling) {
  ModelConfig config = tiny_config("none");
  config.vit.registers = 0;
  const auto names = [&](Pooling pooling) {
    config.vit.pooling = pooling;
    std::string found;
    for (const auto& [name, shape] : shapes_of(config)) {
      if (!name.starts_with("blocks.") && !name.ends_with(".bias")) found += name + " ";
    }
    return found;
  };
  EXPECT_EQ(names(Pooling::class_token),
            "cls_token head.weight norm.weight patch_embed.proj.weight ");
  EXPECT_EQ(names(Pooling::mean), "fc_norm.weight head.weight patch_embed.proj.weight ");
  EXPECT_EQ(names(Pooling::sequence),
            "head.weight norm.weight patch_embed.proj.weight seq_pool.weight ");
}

TEST(ViT, KeepsEncodingParametersInTheirPlaces) {
  using Shapes = std::map<std::string, std::vector<int64_t>>;
  // Grid 2×3, two prefix tokens, two heads of 4.
  const std::vector<std::pair<std::string, Shapes>> cases{
      {"none", {}},
      {"ape", {{"pos_embed", {1, 8, 8}}}},
      {"sinusoidal", {}},
      {"sinusoidal2d", {}},
      {"rpe", {{"rx", {2, 5}}, {"ry", {2, 3}}}},
      {"rpe-shaw", {{"tx", {5, 4}}, {"ty", {3, 4}}}},
      {"rpe-decomposed+ape", {{"pos_embed", {1, 8, 8}}, {"tx", {5, 4}}, {"ty", {3, 4}}}},
      {"rope", {}},
      {"rope2d", {}},
      {"rope2d-mixed", {{"fx", {2, 2}}, {"fy", {2, 2}}}},
      {"cope", {{"e", {8, 4}}}},
      {"cope[M=5]", {{"e", {5, 4}}}},
      {"lape+ape",
       {{"pos_embed", {1, 8, 8}},
        {"lape_embed", {1, 8, 8}},
        {"norm_weight", {8}},
        {"norm_bias", {8}}}},
      {"sape2-k", {{"ex", {4, 4}}, {"ey", {4, 4}}}},
      {"sape2-k[span=between]", {{"ex", {5, 4}}, {"ey", {5, 4}}}},
      {"sape2-qk", {{"ex", {2, 4, 4}}, {"ey", {2, 4, 4}}}},
      {"sape2-k[M=3,tables=per-head]", {{"ex", {2, 3, 4}}, {"ey", {2, 3, 4}}}},
      {"sape2-k[gain-mode=learnable]", {{"ex", {4, 4}}, {"ey", {4, 4}}, {"gain", {}}}},
      {"sape2-rel-k[gates=open]", {{"ex", {5, 4}}, {"ey", {5, 4}}}},
      {"sape2-rel-k", {{"ex", {5, 4}}, {"ey", {5, 4}}, {"gate_alpha", {2}}, {"gate_beta", {2}}}},
      {"sape2-rel-qk[tables=per-head,gain-mode=per-head,M=1]",
       {{"ex", {2, 2, 1, 4}},
        {"ey", {2, 2, 1, 4}},
        {"gate_alpha", {2}},
        {"gate_beta", {2}},
        {"gain", {2}}}},
  };
  const Shapes plain = shapes_of(tiny_config("none"));
  for (const auto& [encoding, expected] : cases) {
    Shapes found;
    for (const auto& [name, shape] : shapes_of(tiny_config(encoding))) {
      const std::string layer = "blocks.1.attn.pos.";
      if (plain.contains(name) || name.starts_with("blocks.0.")) continue;
      found[name.starts_with(layer) ? name.substr(layer.size()) : name] = shape;
    }
    EXPECT_EQ(found, expected) << encoding;
  }
}

TEST(ViT, DecaysWeightsOfLinearLayersOnly) {
  ModelConfig config = tiny_config("sape2-rel-k[gain-mode=learnable]+ape");
  config.vit.depth = 1;
  config.vit.layer_scale = 1;
  const std::set<std::string> expected{"patch_embed.proj.weight",   "blocks.0.attn.qkv.weight",
                                       "blocks.0.attn.proj.weight", "blocks.0.mlp.fc1.weight",
                                       "blocks.0.mlp.fc2.weight",   "head.weight"};
  EXPECT_EQ(ViT(config).decayed_parameters(), expected);
}

TEST(ViT, EmbedsPatchesAsAConvolution) {
  ModelConfig config = tiny_config("none");
  config.vit.image_size = {6, 12};
  config.vit.patch_size = {2, 3};
  config.vit.registers = 0;
  config.vit.pooling = Pooling::mean;
  // Without the branches of its layers a model's features are its patch embeddings.
  config.vit.layer_scale = 0;
  at::NoGradGuard no_grad;
  ViT model(config);
  const at::Tensor images = random_tensor({2, 2, 6, 12}, 1).to(at::kFloat);
  const auto p = model.named_parameters();
  const at::Tensor expected = at::conv2d(images, p["patch_embed.proj.weight"],
                                         p["patch_embed.proj.bias"], at::IntArrayRef({2, 3}));
  EXPECT_LT(difference(model.forward_features(images), expected.flatten(2).transpose(1, 2)), 1e-6);
}

// The whole model once more, in the plainest operations, without positions.
at::Tensor plain_forward(const ViT& model, at::Tensor x) {
  const auto p = model.named_parameters();
  const ViTConfig& c = model.config().vit;
  const auto linear = [&](const at::Tensor& t, const std::string& name) {
    return at::matmul(t, p[name + ".weight"].t()) + p[name + ".bias"];
  };
  const auto norm = [&](const at::Tensor& t, const std::string& name) {
    const at::Tensor centred = t - t.mean(-1, true);
    return centred / (centred.square().mean(-1, true) + 1e-6).sqrt() * p[name + ".weight"] +
           p[name + ".bias"];
  };
  x = at::conv2d(x, p["patch_embed.proj.weight"], p["patch_embed.proj.bias"],
                 {c.patch_size.height, c.patch_size.width})
          .flatten(2)
          .transpose(1, 2);
  x = at::cat(
      {p["cls_token"].expand({x.size(0), -1, -1}), p["reg_token"].expand({x.size(0), -1, -1}), x},
      1);
  for (int64_t layer = 0; layer < c.depth; ++layer) {
    const std::string block = "blocks." + std::to_string(layer) + ".";
    const at::Tensor qkv = linear(norm(x, block + "norm1"), block + "attn.qkv");
    std::vector<at::Tensor> heads;
    for (int64_t head = 0; head < c.heads; ++head) {
      const int64_t d = c.head_size();
      const auto part = [&](int64_t which) { return qkv.narrow(2, which * c.width + head * d, d); };
      const at::Tensor logits = at::matmul(part(0), part(1).transpose(1, 2)) / std::sqrt(d);
      heads.push_back(at::matmul(at::softmax(logits, -1), part(2)));
    }
    x = x + p[block + "ls1.gamma"] * linear(at::cat(heads, 2), block + "attn.proj");
    const at::Tensor hidden = linear(norm(x, block + "norm2"), block + "mlp.fc1");
    const at::Tensor gelu = hidden * 0.5 * (1 + at::erf(hidden / std::sqrt(2.0)));
    x = x + p[block + "ls2.gamma"] * linear(gelu, block + "mlp.fc2");
  }
  return linear(norm(x, "norm").select(1, 0), "head");
}

TEST(ViT, ComputesWhatTimmComputes) {
  at::NoGradGuard no_grad;
  ModelConfig config = tiny_config("none");
  config.vit.layer_scale = 0.7;
  ViT model(config);
  model.to(at::kDouble);
  shake(model, 0.3, 1);
  const at::Tensor images = random_tensor({3, 2, 4, 6}, 2);
  EXPECT_LT(difference(model.forward(images), plain_forward(model, images)), 1e-12);
}

TEST(ViT, PoolsPatchesAndNotPrefixTokens) {
  at::NoGradGuard no_grad;
  ModelConfig config = tiny_config("none");
  const at::Tensor features = random_tensor({2, 7, 8}, 1);
  for (const Pooling pooling : {Pooling::mean, Pooling::sequence}) {
    config.vit.pooling = pooling;
    ViT model(config);
    model.to(at::kDouble);
    shake(model, 0.3, 2);
    at::Tensor other = features.clone();
    other.select(1, 0).add_(1);
    EXPECT_EQ(difference(model.forward_head(features), model.forward_head(other)), 0);
    const auto p = model.named_parameters();
    const at::Tensor patches = features.narrow(1, 1, 6);
    at::Tensor pooled = patches.mean(1);
    if (pooling == Pooling::sequence) {
      const at::Tensor scores = at::matmul(patches, p["seq_pool.weight"][0]) + p["seq_pool.bias"];
      pooled = (at::softmax(scores, 1).unsqueeze(2) * patches).sum(1);
    } else {
      pooled = at::layer_norm(pooled, {8}, p["fc_norm.weight"], p["fc_norm.bias"], 1e-6);
    }
    const at::Tensor expected = at::matmul(pooled, p["head.weight"].t()) + p["head.bias"];
    EXPECT_LT(difference(model.forward_head(features), expected), 1e-12);
  }
}

TEST(ViT, RefusesImagesItCannotCut) {
  ViT model(tiny_config("none"));
  const auto refusal = [&](at::IntArrayRef sizes) {
    return error_text([&] { model.forward(at::zeros(sizes)); });
  };
  EXPECT_NE(refusal({2, 4, 6}).find("images are [2, 4, 6]"), std::string::npos);
  EXPECT_NE(refusal({1, 3, 4, 6}).find("expected [images, 2 channels"), std::string::npos);
  EXPECT_NE(refusal({1, 2, 5, 6}).find("5×6, which patches of 2×2 do not divide"),
            std::string::npos);
  EXPECT_NE(refusal({1, 2, 0, 6}).find("0×6"), std::string::npos);
}

TEST(ViT, DropsInTrainingOnly) {
  at::NoGradGuard no_grad;
  for (double ViTConfig::*rate : {&ViTConfig::embedding_dropout, &ViTConfig::projection_dropout,
                                  &ViTConfig::mlp_dropout, &ViTConfig::stochastic_depth}) {
    ModelConfig config = tiny_config("sape2-rel-k");
    const at::Tensor images = random_tensor({16, 2, 4, 6}, 1).to(at::kFloat);
    ViT plain(config);
    shake(plain, 0.3, 2);
    config.vit.*rate = 0.5;
    ViT model(config);
    shake(model, 0.3, 2);
    EXPECT_GT(difference(model.forward(images), plain.forward(images)), 1e-4);
    model.eval();
    EXPECT_EQ(difference(model.forward(images), plain.forward(images)), 0);
  }
}

TEST(ViT, SkipsBranchesOfLaterLayersPerImage) {
  at::NoGradGuard no_grad;
  ModelConfig config = tiny_config("none");
  config.vit.stochastic_depth = 0.5;
  ViT model(config);
  shake(model, 0.3, 2);
  const at::Tensor images = random_tensor({1, 2, 4, 6}, 1).to(at::kFloat).expand({256, -1, -1, -1});
  const at::Tensor logits = model.forward(images);
  // The first layer never skips; the last one's two branches are there (doubled) or not.
  std::map<long, int> outcomes;
  for (int64_t i = 0; i < 256; ++i) ++outcomes[std::lround(logits[i][0].item<double>() * 1e4)];
  EXPECT_EQ(outcomes.size(), 4u);
  for (const auto& [value, count] : outcomes) EXPECT_NEAR(count, 64, 30);
}

TEST(ViT, MovesToAnotherTypeAsAModule) {
  at::NoGradGuard no_grad;
  ViT model(tiny_config("sape2-rel-qk[gain-mode=learnable]+ape"));
  const at::Tensor images = random_tensor({2, 2, 4, 6}, 1);
  const at::Tensor before = model.forward(images.to(at::kFloat));
  model.to(at::kDouble);
  const at::Tensor after = model.forward(images);
  EXPECT_EQ(after.scalar_type(), at::kDouble);
  EXPECT_LT(difference(after, before.to(at::kDouble)), 1e-5);
}

}  // namespace
}  // namespace sape2::nn::testing
