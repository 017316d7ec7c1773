#include "sape2/io/model_file.h"

#include "sape2/io/tensor_file.h"
#include "sape2/nn/encoding_definition.h"
#include "sape2/nn/vit.h"

#include "support/error_text.h"
#include "support/scratch_folder.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <limits>
#include <string>

namespace sape2::io::test {
namespace {

using namespace sape2::testing;

namespace fs = std::filesystem;

nn::ModelConfig small_config(const std::string& encoding) {
  nn::ModelConfig config;
  config.vit.image_size = {8, 12};
  config.vit.patch_size = {4, 4};
  config.vit.depth = 2;
  config.vit.width = 24;
  config.vit.heads = 2;
  config.vit.classes = 3;
  config.encoding = nn::EncodingSpec::parse(encoding);
  config.class_names = {"cat", "dög", "line\n\"quote\""};
  config.mean = {0.1, 0.2, 1.0 / 3};
  config.deviation = {0.5, 0.25, 0.125};
  return config;
}

at::Tensor logits(nn::ViT& model) {
  const at::NoGradGuard no_grad;
  model.eval();
  const at::Tensor images = at::arange(2 * 3 * 8 * 12, at::kFloat).view({2, 3, 8, 12}).sin();
  return model.forward(images);
}

// Parameters away from their start, so that a file that stored only a seed would be found out.
std::shared_ptr<nn::ViT> make_model(const nn::ModelConfig& config) {
  using Kind = nn::Initialisation::Kind;
  auto model = std::make_shared<nn::ViT>(config, nn::Initialisation{Kind::random, 7});
  const at::NoGradGuard no_grad;
  at::manual_seed(1);
  for (const at::Tensor& parameter : model->parameters()) {
    parameter.add_(at::randn_like(parameter), 0.05);
  }
  return model;
}

std::vector<std::string> encodings_to_store() {
  std::vector<std::string> encodings;
  for (const nn::EncodingDefinition& definition : nn::encoding_definitions()) {
    encodings.push_back(definition.name);
  }
  encodings.insert(encodings.end(), {"sape2-k+ape", "rope2d+ape", "sape2-k[gain=-1,span=between]",
                                     "sape2-rel-qk[tables=per-head,gates=open]"});
  return encodings;
}

class ModelFileOfEachEncoding : public ::testing::TestWithParam<std::string> {};

TEST_P(ModelFileOfEachEncoding, RebuildsTheModelBitForBit) {
  ScratchFolder folder;
  const nn::ModelConfig config = small_config(GetParam());
  const auto model = make_model(config);
  save_model(folder / "model.safetensors", *model);

  EXPECT_EQ(read_model_config(folder / "model.safetensors"), config);
  const auto loaded = load_model(folder / "model.safetensors");
  EXPECT_EQ(loaded->config(), config);
  EXPECT_FALSE(loaded->is_training());
  EXPECT_TRUE(at::equal(logits(*loaded), logits(*model)));
  for (const auto& item : loaded->named_parameters()) {
    EXPECT_TRUE(item.value().requires_grad()) << item.key();
  }
}

INSTANTIATE_TEST_SUITE_P(ModelFile, ModelFileOfEachEncoding,
                         ::testing::ValuesIn(encodings_to_store()), [](const auto& encoding) {
                           std::string name = encoding.param;
                           for (char& c : name) {
                             if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
                           }
                           return name;
                         });

TEST(ModelFile, EveryPartOfTheArchitectureTravels) {
  ScratchFolder folder;
  nn::ModelConfig config = small_config("ape");
  config.vit.pooling = nn::Pooling::class_token;
  config.vit.registers = 2;
  config.vit.layer_scale = 0.1;
  config.vit.mlp_ratio = 1.5;
  config.vit.embedding_dropout = 0.1;
  config.vit.stochastic_depth = 0.2;
  const auto model = make_model(config);
  save_model(folder / "f", *model);
  const auto loaded = load_model(folder / "f");
  EXPECT_EQ(loaded->config(), config);
  EXPECT_TRUE(at::equal(logits(*loaded), logits(*model)));
}

TEST(ModelFile, Bfloat16HalvesTheFileAndRoundsTheWeights) {
  ScratchFolder folder;
  const auto model = make_model(small_config("sape2-rel-k"));
  save_model(folder / "full", *model);
  save_model(folder / "half", *model, {.weights = WeightType::bfloat16, .extra = {}});
  EXPECT_LT(fs::file_size(folder / "half"), fs::file_size(folder / "full") * 2 / 3);
  const auto loaded = load_model(folder / "half");
  const auto expected = model->named_parameters();
  for (const auto& item : loaded->named_parameters()) {
    EXPECT_EQ(item.value().scalar_type(), at::kFloat);
    EXPECT_TRUE(at::equal(item.value(), expected[item.key()].to(at::kBFloat16).to(at::kFloat)))
        << item.key();
  }
}

TEST(ModelFile, CarriesFurtherMetadata) {
  ScratchFolder folder;
  const auto model = make_model(small_config("none"));
  save_model(folder / "f", *model, {.weights = WeightType::float32, .extra = {{"epoch", "12"}}});
  const auto file = SafetensorsFile::open(folder / "f");
  EXPECT_EQ(further_metadata(file), (Metadata{{"epoch", "12"}}));
  EXPECT_EQ(file.metadata().at("format"), "pt");
  for (const char* key : {"format", "sape2_config", "sape2_new"}) {
    expect_contains(error_text([&] {
                      save_model(folder / "g", *model, {WeightType::float32, {{key, "x"}}});
                    }),
                    "\"" + std::string(key) + "\" is the model file's own");
  }
}

/// The sentence for a model file after `change`.
std::string text_after(const std::function<void(NamedTensors&, Metadata&)>& change) {
  ScratchFolder folder;
  save_model(folder / "f", *make_model(small_config("ape")));
  NamedTensors tensors = load_tensors(folder / "f");
  Metadata metadata = SafetensorsFile::open(folder / "f").metadata();
  change(tensors, metadata);
  save_tensors(folder / "changed", tensors, metadata);
  return error_text([&] { load_model(folder / "changed"); });
}

TEST(ModelFile, TensorsThatDoNotFitAreNamed) {
  expect_contains(text_after([](auto& tensors, auto&) { tensors.erase("head.weight"); }),
                  "changed\" has no tensor \"head.weight\", expected one of shape [3, 24]");
  expect_contains(text_after([](auto& tensors, auto&) {
                    tensors["head.weight"] = at::zeros({4, 24});
                  }),
                  "tensor \"head.weight\" has the shape [4, 24], expected [3, 24]");
  expect_contains(
      text_after([](auto& tensors, auto&) { tensors["extra"] = at::zeros({2}); }),
      "has the tensor \"extra\" of shape [2], which a model of its configuration does not have");
  expect_contains(
      text_after([](auto& tensors, auto&) { tensors["head.bias"] = at::zeros({3}, at::kDouble); }),
      "tensor \"head.bias\" has the dtype F64, expected F32 or BF16");
}

TEST(ModelFile, FilesThatAreNoModelsGetASentence) {
  expect_contains(text_after([](auto&, auto& metadata) { metadata.clear(); }),
                  "has weights but no SaPE² configuration");
  expect_contains(
      text_after([](auto&, auto& metadata) { metadata["sape2_format_version"] = "99"; }),
      "format version \"99\", expected \"1\"");
  expect_contains(text_after([](auto&, auto& metadata) { metadata["sape2_config"] = "{"; }),
                  "changed\": the model configuration is not valid JSON");
  expect_contains(text_after([](auto&, auto& metadata) { metadata["sape2_config"] = "{}"; }),
                  "changed\": the model configuration has no \"vit\"");
}

TEST(ModelFile, WeightsThatAreNoNumbersAreNamed) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  expect_contains(text_after([](auto& tensors, auto&) { tensors["head.weight"][1][2] = kNan; }),
                  "tensor \"head.weight\" holds a NaN or an infinity at [1, 2]");
  expect_contains(text_after([](auto& tensors, auto&) { tensors["head.bias"][2] = -kInfinity; }),
                  "tensor \"head.bias\" holds a NaN or an infinity at [2]");
  expect_contains(text_after([](auto& tensors, auto&) {
                    at::Tensor& weight = tensors["blocks.0.mlp.fc1.weight"];
                    weight = weight.to(at::kBFloat16).clone();
                    weight[95][23] = kNan;  // the last one
                  }),
                  "tensor \"blocks.0.mlp.fc1.weight\" holds a NaN or an infinity at [95, 23]");
}

TEST(ModelFile, DamagedWeightsAreRefused) {
  ScratchFolder folder;
  save_model(folder / "f", *make_model(small_config("ape")));
  std::fstream file(folder / "f", std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-4, std::ios::end);
  file.put(static_cast<char>(file.peek() ^ 1));
  file.close();
  expect_contains(error_text([&] { load_model(folder / "f"); }), "was damaged or changed");
}

// Replaces one value of the stored configuration.
std::string text_with(const std::string& key, const std::string& old_value,
                      const std::string& new_value) {
  return text_after([&](auto&, auto& metadata) {
    std::string& config = metadata["sape2_config"];
    const std::string old_text = "\"" + key + "\": " + old_value;
    const auto place = config.find(old_text);
    ASSERT_NE(place, std::string::npos) << config;
    config.replace(place, old_text.size(), "\"" + key + "\": " + new_value);
  });
}

TEST(ModelFile, AHostileConfigurationTakesNoMemory) {
  expect_contains(text_with("depth", "2", "1000000000"), "1000000000");
  expect_contains(text_with("width", "24", "1000000"), "1000000");
  expect_contains(text_with("classes", "3", "9000000000000000000"), "9000000000000000000");
  expect_contains(text_with("mlp_ratio", "4.0", "1e300"), "mlp_ratio");
  expect_contains(text_with("encoding", "\"ape\"", "\"apee\""), "\"apee\"");
  // Within the limits of a configuration, but 4 GiB a matrix.
  expect_contains(text_with("width", "24", "65536"), "has the shape [24], expected [65536]");
  const std::string nested = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  expect_contains(text_with("depth", "2", nested), "nested too deeply");
}

}  // namespace
}  // namespace sape2::io::test
