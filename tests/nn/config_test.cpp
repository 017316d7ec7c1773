#include "sape2/nn/model_config.h"
#include "sape2/nn/presets.h"

#include "nn/support.h"

#include <gtest/gtest.h>

#include <limits>

namespace sape2::nn::testing {
namespace {

using Change = std::function<void(ModelConfig&)>;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(ViTConfig, RefusesEachImpossibleValue) {
  const std::vector<std::pair<Change, std::string>> cases{
      {[](auto& c) { c.vit.heads = 5; }, "width is 384, which 5 heads do not divide"},
      {[](auto& c) {
         c.vit.patch_size = {5, 4};
       },
       "image height is 32, which patches of height 5"},
      {[](auto& c) {
         c.vit.image_size = {32, 30};
       },
       "image width is 30, which patches of width 4"},
      {[](auto& c) {
         c.vit.image_size = {0, 32};
       },
       "image height is 0"},
      {[](auto& c) {
         c.vit.patch_size = {4, 0};
       },
       "patch width is 0"},
      {[](auto& c) {
         c.vit.patch_size = {4, -4};
       },
       "patch width is -4"},
      {[](auto& c) {
         c.vit.image_size = {1 << 20, 1 << 20};
       },
       "image height is 1048576"},
      {[](auto& c) {
         c.vit.image_size = {1 << 16, 1 << 16};
       },
       "tokens is"},
      {[](auto& c) { c.vit.channels = 0; }, "channels is 0"},
      {[](auto& c) { c.vit.classes = 0; }, "classes is 0"},
      {[](auto& c) { c.vit.depth = 0; }, "depth is 0"},
      {[](auto& c) { c.vit.width = 0; }, "width is 0"},
      {[](auto& c) { c.vit.heads = 0; }, "heads is 0"},
      {[](auto& c) { c.vit.registers = -1; }, "registers is -1"},
      {[](auto& c) { c.vit.mlp_ratio = 0; }, "mlp_ratio is 0"},
      {[](auto& c) { c.vit.mlp_ratio = 1e-9; }, "mlp_ratio is 0"},
      {[](auto& c) { c.vit.mlp_ratio = 1e30; }, "mlp_ratio is"},
      {[](auto& c) { c.vit.mlp_ratio = kNan; }, "mlp_ratio is nan"},
      {[](auto& c) { c.vit.embedding_dropout = 1; }, "embedding_dropout is 1"},
      {[](auto& c) { c.vit.projection_dropout = -0.5; }, "projection_dropout is -0.5"},
      {[](auto& c) { c.vit.mlp_dropout = kNan; }, "mlp_dropout is nan"},
      {[](auto& c) { c.vit.stochastic_depth = 2; }, "stochastic_depth is 2"},
      {[](auto& c) { c.vit.layer_scale = kNan; }, "layer_scale is nan"},
      {[](auto& c) {
         c.class_names = {"cat", "dog"};
       },
       "class_names has 2 entries"},
      {[](auto& c) { c.mean = {0.5}; }, "mean has 1 entries"},
      {[](auto& c) {
         c.mean = {0.5, 0.5, 0.5};
       },
       "deviation has 0"},
      {[](auto& c) {
         c.mean = c.deviation = {0.5, 0.5, 0};
       },
       "deviation holds 0"},
      {[](auto& c) {
         c.mean = {kNan, 0, 0}, c.deviation = {1, 1, 1};
       },
       "mean holds"},
  };
  for (const auto& [change, expected] : cases) {
    ModelConfig config;
    config.validate();
    change(config);
    const std::string sentence = error_text([&, &c = config] { c.validate(); });
    EXPECT_NE(sentence.find(expected), std::string::npos) << expected << " -> " << sentence;
  }
}

TEST(ModelConfig, RefusesEncodingsThatCannotServeTheModel) {
  const std::vector<std::tuple<std::string, int64_t, int64_t, std::string>> cases{
      {"rope", 9, 3, "\"rope\" needs a head size divisible by 2"},
      {"rope2d", 12, 2, "\"rope2d\" needs a head size divisible by 4"},
      {"rope2d-mixed+ape", 12, 2, "\"rope2d-mixed\" needs a head size divisible by 4"},
      {"sinusoidal2d", 9, 3, "\"sinusoidal2d\" needs an even width"},
  };
  for (const auto& [encoding, width, heads, expected] : cases) {
    ModelConfig config;
    config.vit.width = width;
    config.vit.heads = heads;
    config.encoding = EncodingSpec::parse(encoding);
    const std::string sentence = error_text([&, &c = config] { c.validate(); });
    EXPECT_NE(sentence.find(expected), std::string::npos) << encoding << " -> " << sentence;
  }
}

ModelConfig unusual_config() {
  ModelConfig config = tiny_config("sape2-k[gain=-0.1]+ape");
  config.vit.pooling = Pooling::sequence;
  config.vit.embedding_dropout = 0.1;
  config.vit.projection_dropout = 0.2;
  config.vit.mlp_dropout = 0.3;
  config.vit.stochastic_depth = 0.4;
  config.vit.layer_scale = 1e-5;
  config.class_names = {"Käfer", "\"quoted\"", ""};
  config.mean = {0.4914, 0.1};
  config.deviation = {0.247, 1.0 / 3};
  return config;
}

TEST(ModelConfig, SurvivesJson) {
  for (const ModelConfig& config : {ModelConfig(), unusual_config(), tiny_config("rope2d")}) {
    EXPECT_EQ(model_config_from_json(to_json(config)), config);
  }
}

TEST(ModelConfig, RefusesBrokenJsonWithOneSentence) {
  const std::string good = to_json(unusual_config());
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    EXPECT_NE(text.find(from), std::string::npos) << from;
    return text.replace(text.find(from), from.size(), to);
  };
  const std::vector<std::pair<std::string, std::string>> cases{
      {"", "not valid JSON"},
      {good.substr(0, good.size() / 2), "not valid JSON"},
      {std::string(100000, '['), "nested too deeply"},
      {"[]", "not a JSON object"},
      {"{}", "has no \"vit\""},
      {replaced("\"depth\"", "\"depht\""), "has no \"depth\""},
      {replaced("\"depth\": 2", "\"depth\": 2, \"dpeth\": 3"), "unknown key \"dpeth\""},
      {replaced("\"depth\": 2", "\"depth\": 2.5"), "\"depth\" = \"2.5\", expected a whole number"},
      {replaced("\"depth\": 2", "\"depth\": \"2\""), "expected a whole number"},
      {replaced("\"depth\": 2", "\"depth\": 18446744073709551615"), "expected a smaller number"},
      {replaced("\"depth\": 2", "\"depth\": 0"), "depth is 0"},
      {replaced("\"mlp_ratio\": 2.0", "\"mlp_ratio\": null"), "expected a number"},
      {replaced("\"pooling\": \"sequence\"", "\"pooling\": \"sequenze\""),
       "the nearest is \"sequence\""},
      {replaced("\"pooling\": \"sequence\"", "\"pooling\": 1"), "expected a string"},
      {replaced("sape2-k[", "sape2-x["), "encoding \"sape2-x\" is not known"},
      {replaced("\"mean\": [", "\"mean\": [\"a\","), "expected a list of numbers"},
      {replaced("\"class_names\": [", "\"class_names\": [1,"), "expected a list of strings"},
      {replaced("\"image_size\": [", "\"image_size\": [1,"), "a list of two whole numbers"},
  };
  for (const auto& [json, expected] : cases) {
    const std::string sentence = error_text([&, &text = json] { model_config_from_json(text); });
    EXPECT_NE(sentence.find(expected), std::string::npos) << expected << " -> " << sentence;
    EXPECT_LT(sentence.size(), 400u);
  }
}

TEST(Presets, HaveTheNamedSizes) {
  const ViTConfig& small = preset("vit-small").config;
  EXPECT_EQ(small.depth, 12);
  EXPECT_EQ(small.width, 384);
  EXPECT_EQ(small.heads, 6);
  EXPECT_EQ(small.mlp_width(), 1536);
  EXPECT_EQ(small.rows(), 8);
  EXPECT_EQ(small.prefix(), 0);
  const ViTConfig& compact = preset("vit-compact").config;
  EXPECT_EQ(compact.mlp_width(), 384);
  EXPECT_EQ(compact.head_size(), 16);
  EXPECT_NE(error_text([] { preset("vit-smal"); }).find("the nearest is \"vit-small\""),
            std::string::npos);
}

TEST(Presets, HaveTheKnownNumbersOfParameters) {
  // A block of width D and MLP ratio r has (4 + 2r)·D² + (9 + r)·D parameters.
  const std::map<std::string, int64_t> expected{{"vit-tiny", 5362378},
                                                {"vit-small", 21341578},
                                                {"vit-base", 85150474},
                                                {"vit-compact", 2697226},
                                                {"vit-micro", 311146}};
  for (const Preset& known : presets()) {
    ModelConfig config{.vit = known.config, .encoding = EncodingSpec::parse("ape")};
    EXPECT_EQ(parameter_count(config), expected.at(known.name)) << known.name;
    const int64_t d = known.config.width, hidden = known.config.mlp_width();
    const int64_t block = 4 * d * d + 4 * d + 2 * d * hidden + hidden + d + 4 * d;
    const int64_t rest = 48 * d + d + 64 * d + 2 * d + 10 * d + 10;
    EXPECT_EQ(parameter_count(config), known.config.depth * block + rest) << known.name;
  }
}

}  // namespace
}  // namespace sape2::nn::testing
