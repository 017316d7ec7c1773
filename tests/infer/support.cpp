#include "infer/support.h"

#include "sape2/nn/encoding_definition.h"
#include "sape2/nn/random_stream.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

namespace sape2::infer::testing {

nn::ModelConfig small_config(const std::string& encoding) {
  nn::ModelConfig config;
  config.vit = {.image_size = {12, 20},
                .patch_size = {4, 4},
                .channels = 3,
                .classes = 10,
                .depth = 3,
                .width = 48,
                .heads = 3,
                .mlp_ratio = 2,
                .pooling = nn::Pooling::class_token,
                .registers = 2};
  config.encoding = nn::EncodingSpec::parse(encoding);
  return config;
}

SavedModel::SavedModel(const nn::ModelConfig& config, io::WeightType weights) {
  nn::ViT made(config, {.seed = 3});
  const at::NoGradGuard no_grad;
  std::uint64_t seed = 1;
  for (auto& parameter : made.named_parameters()) {
    at::Tensor value = parameter.value();
    const std::vector<float> noise = random_numbers(value.numel(), seed++);
    value.add_(at::tensor(noise).view(value.sizes()), 0.2);
  }
  io::save_model(path, made, {.weights = weights, .extra = {}});
  model = io::load_model(path);
}

std::vector<float> SavedModel::logits(const std::vector<float>& pixels, std::int64_t count,
                                      std::int64_t height, std::int64_t width) const {
  const at::NoGradGuard no_grad;
  const at::Tensor images =
      at::tensor(pixels).view({count, model->config().vit.channels, height, width});
  const at::Tensor logits = model->forward(images).contiguous();
  return {logits.data_ptr<float>(), logits.data_ptr<float>() + logits.numel()};
}

std::vector<float> random_numbers(std::int64_t count, std::uint64_t seed) {
  nn::RandomStream stream(seed, "infer");
  std::vector<float> numbers(static_cast<std::size_t>(count));
  for (float& number : numbers) number = static_cast<float>(stream.normal());
  return numbers;
}

double relative_difference(const std::vector<float>& actual, const std::vector<float>& expected) {
  if (actual.size() != expected.size()) return INFINITY;
  double largest = 0, difference = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (!std::isfinite(actual[i])) return INFINITY;
    largest = std::max(largest, std::abs(static_cast<double>(expected[i])));
    difference = std::max(difference, std::abs(static_cast<double>(actual[i]) - expected[i]));
  }
  return difference == 0 ? 0 : difference / largest;
}

std::vector<std::string> encodings_with_options() {
  std::vector<std::string> all;
  for (const nn::EncodingDefinition& definition : nn::encoding_definitions()) {
    all.push_back(definition.name);
    if (definition.name != "ape") all.push_back(definition.name + "+ape");
    for (const nn::EncodingOption& option : definition.options) {
      std::vector<std::string> values = option.choices;
      if (option.kind == nn::OptionKind::number) values = {"-0.7"};
      if (option.kind == nn::OptionKind::integer) values = {"5"};
      for (const std::string& value : values) {
        // The runtime refuses it, see Logits.OfAFormWithoutAKernelAreRefused.
        if (value == option.default_value || value == "paths") continue;
        all.push_back(definition.name + "[" + option.name + "=" + value + "]");
      }
    }
  }
  for (const char* combined :
       {"sape2-qk[tables=per-head,resize=resample]", "sape2-rel-qk[tables=per-head,resize=extend]",
        "sape2-rel-k[span=suffix,form=distance,gain-mode=per-head]", "cope[M=4,bias=inside]+ape"}) {
    all.emplace_back(combined);
  }
  return all;
}

}  // namespace sape2::infer::testing
