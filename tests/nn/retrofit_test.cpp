#include "sape2/nn/retrofit.h"

#include "sape2/nn/encoding_definition.h"

#include "nn/support.h"

#include <gtest/gtest.h>

// Trained models that get another encoding, other classes or another image size.
namespace sape2::nn::testing {
namespace {

constexpr double kUnchanged = 1e-6;

// Square patches' grid of 3×3, so that tables along x and y have the same rows.
ModelConfig config_of(const std::string& encoding, Size2d image = {6, 6}) {
  ModelConfig config = tiny_config(encoding);
  config.vit.image_size = image;
  return config;
}

// As if it were trained: no parameter is at a special value.
std::shared_ptr<ViT> trained_model(const std::string& encoding) {
  auto model = std::make_shared<ViT>(config_of(encoding), Initialisation{.seed = 3});
  shake(*model, 0.3, 4);
  model->eval();
  return model;
}

at::Tensor logits(ViT& model, Size2d image = {6, 6}) {
  const at::NoGradGuard no_grad;
  model.eval();
  return model.forward(random_tensor({3, 2, image.height, image.width}, 5).to(at::kFloat));
}

struct Adapted {
  Adapted(ViT& trained, ModelConfig config) {
    config.encoding = retrofitted(trained.config().encoding, config.encoding);
    model = std::make_shared<ViT>(config, Initialisation{.seed = 8});
    result = retrofit(*model, trained);
  }
  std::shared_ptr<ViT> model;
  Retrofit result;
};

// Whether fine-tuning moves what is new: a parameter of the encoding has a gradient.
bool learns(ViT& model, const std::vector<std::string>& names) {
  model.zero_grad();
  model.forward(random_tensor({3, 2, 6, 6}, 6).to(at::kFloat)).square().sum().backward();
  for (const auto& item : model.named_parameters()) {
    if (std::ranges::find(names, item.key()) == names.end()) continue;
    if (item.value().grad().defined() && item.value().grad().count_nonzero().item<int64_t>() > 0) {
      return true;
    }
  }
  return false;
}

class Addition : public ::testing::TestWithParam<std::string> {};

// Every encoding that has a silent start, added to models of several encodings.
TEST_P(Addition, LeavesTheFunctionUnchangedAndLearns) {
  const std::string added = GetParam();
  ASSERT_TRUE(silent_start(EncodingSpec::parse(added)));
  const auto with_ape = trained_model("ape");
  const auto without = trained_model("none");
  for (const auto& trained : {with_ape, without}) {
    const bool keeps_ape = trained == with_ape && added != "ape";
    Adapted adapted(*trained, config_of(keeps_ape ? added + "+ape" : added));
    EXPECT_LT(difference(logits(*adapted.model), logits(*trained)), kUnchanged)
        << trained->config().encoding.to_string();
    EXPECT_TRUE(adapted.result.unchanged());
    EXPECT_TRUE(adapted.result.zeroed.empty() || learns(*adapted.model, adapted.result.zeroed));
  }
}

std::vector<std::string> silent_encodings() {
  std::vector<std::string> names;
  for (const EncodingDefinition& definition : encoding_definitions()) {
    if (definition.silent_start) names.push_back(definition.name);
  }
  names.insert(names.end(),
               {"sape2-rel-k[form=paths]", "sape2-rel-k[gates=open]", "sape2-k[form=direct]",
                "sape2-rel-qk[gain-mode=per-head]", "sape2-k[gain-mode=learnable,gain=-1]"});
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, Addition, ::testing::ValuesIn(silent_encodings()),
                         [](const auto& test) { return test_name(test.param); });

TEST(Retrofit, AddsLearntVectorsToEveryEncoding) {
  for (const std::string& encoding : all_encodings()) {
    if (encoding == "ape") continue;
    const auto trained = trained_model(encoding);
    Adapted adapted(*trained, config_of(encoding + "+ape"));
    EXPECT_LT(difference(logits(*adapted.model), logits(*trained)), kUnchanged) << encoding;
    EXPECT_TRUE(adapted.result.unchanged()) << encoding;
  }
}

TEST(Retrofit, KeepsAModelThatGetsItsOwnEncoding) {
  for (const std::string& encoding : all_encodings(/*with_ape=*/true)) {
    const auto trained = trained_model(encoding);
    Adapted adapted(*trained, config_of(encoding));
    EXPECT_EQ(difference(logits(*adapted.model), logits(*trained)), 0) << encoding;
    EXPECT_EQ(adapted.result.kept, static_cast<int64_t>(trained->parameters().size()));
  }
}

TEST(Retrofit, KeepsTablesUnderOtherOptions) {
  const auto trained = trained_model("sape2-rel-k");
  Adapted learnt(*trained, config_of("sape2-rel-k[gain-mode=learnable]"));
  EXPECT_LT(difference(logits(*learnt.model), logits(*trained)), kUnchanged);
  EXPECT_EQ(learnt.result.fresh.size(), 2u);  // a gain of 1 in each layer
  EXPECT_TRUE(learnt.result.zeroed.empty());
  Adapted paths(*trained, config_of("sape2-rel-k[form=paths]"));
  EXPECT_TRUE(paths.result.fresh.empty());
  EXPECT_FALSE(paths.result.unchanged());
}

TEST(Retrofit, SaysWhereTheFunctionChanges) {
  const auto ape = trained_model("ape");
  for (const char* encoding : {"sape2-rel-k", "none", "rope+ape", "rope2d+ape", "sinusoidal+ape",
                               "sinusoidal2d+ape", "sape2-k[gain=-1]+ape"}) {
    Adapted adapted(*ape, config_of(encoding));
    EXPECT_FALSE(adapted.result.unchanged()) << encoding;
    EXPECT_GT(difference(logits(*adapted.model), logits(*ape)), 1e-4) << encoding;
  }
  // Dropped vectors are all that changes: with them, it is the trained model again.
  Adapted dropped(*ape, config_of("sape2-rel-k"));
  const auto none = std::make_shared<ViT>(config_of("none"), Initialisation{.seed = 8});
  retrofit(*none, *ape);
  EXPECT_LT(difference(logits(*dropped.model), logits(*none)), kUnchanged);
}

TEST(Retrofit, OnlyADistanceNeedsALearntGain) {
  const auto from = EncodingSpec::parse("ape");
  const auto fitted = [&](const char* wanted) {
    return retrofitted(from, EncodingSpec::parse(wanted)).to_string();
  };
  EXPECT_EQ(fitted("sape2-k+ape"), "sape2-k[gain=0,gain-mode=learnable]+ape");
  EXPECT_EQ(fitted("sape2-k[span=between]"), "sape2-k[span=between,gain=0,gain-mode=learnable]");
  EXPECT_EQ(fitted("sape2-rel-k+ape"), "sape2-rel-k+ape");
  EXPECT_EQ(fitted("sape2-k[gain=-1]"), "sape2-k[gain=-1]");
  EXPECT_EQ(fitted("rope2d"), "rope2d");
  EXPECT_EQ(
      retrofitted(EncodingSpec::parse("sape2-k+ape"), EncodingSpec::parse("sape2-k")).to_string(),
      "sape2-k");
}

TEST(Retrofit, ResizesAsTheLayersDo) {
  for (const std::string encoding :
       {"ape", "lape", "rpe", "rpe-shaw", "cope", "rope2d-mixed", "sape2-k+ape", "sape2-rel-k",
        "sape2-rel-qk[tables=per-head]", "sape2-rel-k[resize=extend]", "sape2-k[resize=resample]",
        "sape2-rel-k[resize=resample]", "sape2-rel-k[form=paths]"}) {
    for (const Size2d image : {Size2d{12, 8}, Size2d{4, 6}}) {
      const auto trained = trained_model(encoding);
      Adapted adapted(*trained, config_of(encoding, image));
      EXPECT_LT(difference(logits(*adapted.model, image), logits(*trained, image)), kUnchanged)
          << encoding << " at " << image.height << "×" << image.width;
      EXPECT_TRUE(adapted.result.fresh.empty()) << encoding;
    }
  }
}

TEST(Retrofit, MakesANewHeadForOtherClassesOnly) {
  const auto trained = trained_model("ape");
  ModelConfig config = config_of("ape");
  config.vit.classes = 5;
  const Adapted more(*trained, config);
  EXPECT_EQ(more.result.fresh, (std::vector<std::string>{"head.weight", "head.bias"}));
  EXPECT_TRUE(more.result.unchanged());  // but for the head

  ModelConfig named = config_of("ape");
  named.class_names = {"a", "b", "c"};
  EXPECT_TRUE(Adapted(*trained, named).result.fresh.empty());  // the trained model names none
  auto with_names = std::make_shared<ViT>(named, Initialisation{.seed = 3});
  EXPECT_TRUE(Adapted(*with_names, named).result.fresh.empty());
  named.class_names = {"a", "b", "d"};
  EXPECT_EQ(Adapted(*with_names, named).result.fresh.size(), 2u);
}

TEST(Retrofit, ResizesPatchKernels) {
  const at::NoGradGuard no_grad;
  const auto trained = trained_model("ape");
  ModelConfig config = config_of("ape", {12, 12});
  config.vit.patch_size = {4, 4};
  const Adapted adapted(*trained, config);
  EXPECT_TRUE(adapted.result.fresh.empty());
  EXPECT_FALSE(adapted.result.difference);
  // Bilinear enlarging of one patch has nothing outside of it to read, so an image of one patch.
  const auto kernel = [](const ViT& model) {
    return model.named_parameters()["patch_embed.proj.weight"];
  };
  const at::Tensor patch = random_tensor({1, 2, 2, 2}, 9).to(at::kFloat);
  const at::Tensor larger = at::upsample_bilinear2d(patch, {4, 4}, /*align_corners=*/false);
  EXPECT_LT(
      difference(at::conv2d(larger, kernel(*adapted.model)), at::conv2d(patch, kernel(*trained))),
      1e-5);
}

TEST(Retrofit, RefusesAModelOfAnotherSize) {
  const auto trained = trained_model("ape");
  const auto refuse = [&](void (*change)(ViTConfig&)) {
    ModelConfig config = config_of("ape");
    change(config.vit);
    return error_text([&] { Adapted(*trained, config); });
  };
  EXPECT_NE(refuse([](ViTConfig& vit) { vit.depth = 3; }).find("depth 2, but a model with depth 3"),
            std::string::npos);
  EXPECT_NE(refuse([](ViTConfig& vit) { vit.width = 16; }).find("width 8"), std::string::npos);
  EXPECT_NE(refuse([](ViTConfig& vit) { vit.heads = 1; }).find("heads 2"), std::string::npos);
  EXPECT_NE(refuse([](ViTConfig& vit) { vit.mlp_ratio = 3; }).find("MLP width 16"),
            std::string::npos);
}

}  // namespace
}  // namespace sape2::nn::testing
