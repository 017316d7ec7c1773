#include "nn/support.h"

#include <gtest/gtest.h>

namespace sape2::nn::testing {

std::vector<std::string> all_encodings(bool with_ape) {
  std::vector<std::string> names;
  for (const EncodingDefinition& definition : encoding_definitions()) {
    names.push_back(definition.name);
    if (with_ape && definition.name != "ape") names.push_back(definition.name + "+ape");
  }
  return names;
}

std::string test_name(const std::string& encoding) {
  std::string name;
  for (char c : encoding) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

LayerFixture::LayerFixture(const std::string& name, EncodingShape model)
    : shape(model), grid{shape.rows, shape.cols, shape.prefix} {
  ParameterScope scope(root, {.seed = 1}, decayed);
  encoding = make_encoding(EncodingSpec::parse(name), shape, scope);
  ParameterScope pos = scope.child("pos");
  layer = encoding->make_layer(pos);
  root.to(at::kDouble);
  shake(root, 0.5, 2);
}

at::Tensor random_tokens(const EncodingShape& shape, const ops::Grid& grid, uint64_t seed) {
  return random_tensor({2, shape.heads, grid.tokens(), shape.head_size()}, seed);
}

ModelConfig tiny_config(const std::string& encoding) {
  ModelConfig config;
  config.vit = {.image_size = {4, 6},
                .patch_size = {2, 2},
                .channels = 2,
                .classes = 3,
                .depth = 2,
                .width = 8,
                .heads = 2,
                .mlp_ratio = 2,
                .pooling = Pooling::class_token,
                .registers = 1};
  config.encoding = EncodingSpec::parse(encoding);
  return config;
}

at::Tensor random_tensor(at::IntArrayRef sizes, uint64_t seed) {
  RandomStream stream(seed, "test");
  at::Tensor tensor = at::empty(sizes, at::kDouble);
  double* data = tensor.data_ptr<double>();
  for (int64_t i = 0; i < tensor.numel(); ++i) data[i] = stream.normal();
  return tensor;
}

void shake(torch::nn::Module& module, double deviation, uint64_t seed) {
  at::NoGradGuard no_grad;
  for (auto& parameter : module.named_parameters()) {
    at::Tensor value = parameter.value();
    value.add_(random_tensor(value.sizes(), seed++).to(value.scalar_type()), deviation);
  }
}

void expect_gradients(const std::function<at::Tensor()>& loss,
                      const std::vector<std::pair<std::string, at::Tensor>>& inputs) {
  constexpr double kStep = 1e-6;
  constexpr double kTolerance = 1e-7;
  for (const auto& [name, input] : inputs) input.mutable_grad() = at::Tensor();
  loss().backward();
  uint64_t seed = 100;
  for (const auto& [name, input] : inputs) {
    ASSERT_TRUE(input.grad().defined()) << name << " got no gradient";
    for (int direction_number = 0; direction_number < 2; ++direction_number) {
      const at::Tensor direction = random_tensor(input.sizes(), ++seed);
      const auto value_at = [&](double step) {
        at::NoGradGuard no_grad;
        at::Tensor variable = input;
        const at::Tensor before = variable.clone();
        variable.add_(direction, step);
        const double value = loss().item<double>();
        variable.copy_(before);
        return value;
      };
      const double numeric = (value_at(kStep) - value_at(-kStep)) / (2 * kStep);
      const double analytic = (input.grad() * direction).sum().item<double>();
      const double size = 1 + input.grad().norm().item<double>();
      EXPECT_NEAR(analytic, numeric, kTolerance * size) << "gradient of " << name;
    }
  }
}

double difference(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

}  // namespace sape2::nn::testing
