#include "sape2/nn/presets.h"

#include "nn/support.h"

#include <gtest/gtest.h>

#include <cmath>

namespace sape2::nn::testing {
namespace {

std::map<std::string, at::Tensor> parameters_of(const ViT& model) {
  std::map<std::string, at::Tensor> all;
  for (const auto& parameter : model.named_parameters()) all[parameter.key()] = parameter.value();
  return all;
}

double deviation(const at::Tensor& x) {
  return x.detach().std(false).item<double>();
}

TEST(RandomStream, DependsOnSeedAndNameOnly) {
  RandomStream a(1, "x"), b(1, "x"), other_seed(2, "x"), other_name(1, "y");
  const double first = a.uniform();
  EXPECT_EQ(first, b.uniform());
  EXPECT_NE(first, other_seed.uniform());
  EXPECT_NE(first, other_name.uniform());
  // Fixed values: a model made today is the one made tomorrow, on any machine.
  RandomStream fixed(42, "blocks.0.attn.qkv.weight");
  EXPECT_DOUBLE_EQ(fixed.uniform(), 0.8520731947869936);
  EXPECT_DOUBLE_EQ(fixed.uniform(), 0.7734426460661227);
}

TEST(RandomStream, IsUniformAndNormal) {
  RandomStream stream(3, "statistics");
  constexpr int kCount = 200000;
  double sum = 0, square = 0, normal_sum = 0, normal_square = 0, fourth = 0;
  for (int i = 0; i < kCount; ++i) {
    const double u = stream.uniform(), n = stream.normal();
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    sum += u, square += u * u, normal_sum += n, normal_square += n * n, fourth += n * n * n * n;
  }
  EXPECT_NEAR(sum / kCount, 0.5, 0.005);
  EXPECT_NEAR(square / kCount, 1.0 / 3, 0.005);
  EXPECT_NEAR(normal_sum / kCount, 0, 0.01);
  EXPECT_NEAR(normal_square / kCount, 1, 0.02);
  EXPECT_NEAR(fourth / kCount, 3, 0.15);
}

TEST(Initialisation, FollowsTimm) {
  ModelConfig config;
  config.vit.depth = 1;
  config.vit.width = 192;
  config.vit.heads = 3;
  config.vit.pooling = Pooling::class_token;
  config.vit.registers = 4;
  config.vit.layer_scale = 1e-5;
  config.encoding = EncodingSpec::parse("ape");
  const auto p = parameters_of(ViT(config));
  for (const char* name : {"blocks.0.attn.qkv.weight", "blocks.0.attn.proj.weight",
                           "blocks.0.mlp.fc1.weight", "blocks.0.mlp.fc2.weight", "pos_embed"}) {
    EXPECT_NEAR(deviation(p.at(name)), 0.02, 0.0006) << name;
  }
  EXPECT_NEAR(deviation(p.at("head.weight")), 0.02, 0.001);
  EXPECT_NEAR(deviation(p.at("cls_token")), 1e-6, 2e-7);
  EXPECT_NEAR(deviation(p.at("reg_token")), 1e-6, 2e-7);
  const double bound = 1 / std::sqrt(48.0);
  for (const char* name : {"patch_embed.proj.weight", "patch_embed.proj.bias"}) {
    EXPECT_LE(p.at(name).abs().max().item<double>(), bound) << name;
    EXPECT_GT(p.at(name).abs().max().item<double>(), 0.95 * bound) << name;
  }
  for (const auto& [name, value] : p) {
    const bool norm = name.find("norm") != std::string::npos;
    if (name.ends_with(".bias") && !name.starts_with("patch_embed")) {
      EXPECT_EQ(value.abs().max().item<double>(), 0) << name;
    }
    if (norm && name.ends_with(".weight")) {
      EXPECT_TRUE(value.eq(1).all().item<bool>()) << name;
    }
    if (name.ends_with(".gamma")) {
      EXPECT_TRUE(value.eq(1e-5F).all().item<bool>()) << name;
    }
  }
}

TEST(Initialisation, DependsOnTheSeed) {
  const ModelConfig config = tiny_config("rope2d-mixed+ape");
  const auto a = parameters_of(ViT(config, {.seed = 5})),
             b = parameters_of(ViT(config, {.seed = 5})),
             c = parameters_of(ViT(config, {.seed = 6}));
  for (const auto& [name, value] : a) EXPECT_TRUE(value.equal(b.at(name))) << name;
  for (const char* name : {"pos_embed", "blocks.1.attn.pos.fx", "blocks.0.mlp.fc1.weight"}) {
    EXPECT_FALSE(a.at(name).equal(c.at(name))) << name;
  }
  EXPECT_FALSE(a.at("blocks.0.mlp.fc1.weight").equal(a.at("blocks.1.mlp.fc1.weight")));
}

TEST(Initialisation, GivesEveryEncodingTheSameBackbone) {
  const auto plain = parameters_of(ViT(tiny_config("none")));
  for (const std::string& encoding : all_encodings(/*with_ape=*/true)) {
    const auto p = parameters_of(ViT(tiny_config(encoding)));
    for (const auto& [name, value] : plain) {
      EXPECT_TRUE(value.equal(p.at(name))) << encoding << " " << name;
    }
  }
}

TEST(Initialisation, OfEncodingsFollowsTheSpecification) {
  ModelConfig config;
  config.vit.depth = 1;
  const auto parameters = [&](const std::string& encoding) {
    config.encoding = EncodingSpec::parse(encoding);
    return parameters_of(ViT(config));
  };
  const std::string pos = "blocks.0.attn.pos.";
  const auto all_are = [](const at::Tensor& x, double value) {
    return x.eq(value).all().item<bool>();
  };
  const auto rel = parameters("sape2-rel-k");
  EXPECT_NEAR(deviation(rel.at(pos + "ex")), 0.02, 0.002);
  EXPECT_NEAR(deviation(rel.at(pos + "ey")), 0.02, 0.002);
  EXPECT_TRUE(all_are(rel.at(pos + "gate_alpha"), 1));
  EXPECT_TRUE(all_are(rel.at(pos + "gate_beta"), 2));
  const auto changed =
      parameters("sape2-k[gates=learnable,gate-scale=1,gain=-0.5,gain-mode=per-head]");
  EXPECT_TRUE(all_are(changed.at(pos + "gate_alpha"), 8));  // s_g = 1 = α/√64
  EXPECT_TRUE(all_are(changed.at(pos + "gate_beta"), 0));
  EXPECT_TRUE(all_are(changed.at(pos + "gain"), -0.5));
  const auto rpe = parameters("rpe");
  EXPECT_TRUE(all_are(rpe.at(pos + "rx"), 0));
  EXPECT_TRUE(all_are(rpe.at(pos + "ry"), 0));
  EXPECT_NEAR(deviation(parameters("rpe-shaw").at(pos + "tx")), 0.02, 0.002);
  EXPECT_NEAR(deviation(parameters("cope").at(pos + "e")), 0.02, 0.002);
  EXPECT_NEAR(deviation(parameters("lape").at("lape_embed")), 0.02, 0.002);
}

TEST(Initialisation, OfMixedRotaryTurnsTheSecondHalfByARightAngle) {
  ModelConfig config = tiny_config("rope2d-mixed");
  config.vit.width = 32;
  config.vit.heads = 2;  // head size 16: 8 pairs
  const auto p = parameters_of(ViT(config));
  const at::Tensor fx = p.at("blocks.0.attn.pos.fx").detach().to(at::kDouble);
  const at::Tensor fy = p.at("blocks.0.attn.pos.fy").detach().to(at::kDouble);
  for (int64_t head = 0; head < 2; ++head) {
    for (int64_t t = 0; t < 4; ++t) {
      const double x = fx[head][t].item<double>(), y = fy[head][t].item<double>();
      EXPECT_NEAR(std::hypot(x, y), std::pow(10, -4.0 * t / 16), 1e-6);
      EXPECT_NEAR(fx[head][t + 4].item<double>(), -y, 1e-6);
      EXPECT_NEAR(fy[head][t + 4].item<double>(), x, 1e-6);
      // One direction a head.
      EXPECT_NEAR(std::atan2(y, x),
                  std::atan2(fy[head][0].item<double>(), fx[head][0].item<double>()), 1e-5);
    }
  }
  EXPECT_FALSE(fx[0].equal(fx[1]));
}

TEST(Initialisation, ShapesOnlyTakesNoMemoryAndKeepsNames) {
  ModelConfig config;
  config.vit = preset("vit-base").config;
  const ViT shapes(config, {.kind = Initialisation::Kind::shapes_only});
  for (const auto& parameter : shapes.named_parameters()) {
    EXPECT_TRUE(parameter.value().is_meta()) << parameter.key();
  }
  const auto full = parameters_of(ViT(tiny_config("sape2-rel-qk")));
  const auto meta =
      parameters_of(ViT(tiny_config("sape2-rel-qk"), {.kind = Initialisation::Kind::shapes_only}));
  const auto unset = parameters_of(
      ViT(tiny_config("sape2-rel-qk"), {.kind = Initialisation::Kind::uninitialised}));
  ASSERT_EQ(full.size(), meta.size());
  for (const auto& [name, value] : full) {
    EXPECT_EQ(value.sizes(), meta.at(name).sizes()) << name;
    EXPECT_EQ(value.sizes(), unset.at(name).sizes()) << name;
  }
}

}  // namespace
}  // namespace sape2::nn::testing
