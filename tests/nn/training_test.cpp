#include "nn/support.h"

#include <gtest/gtest.h>

#include <cmath>

// What models learn and see, for every registered encoding.
namespace sape2::nn::testing {
namespace {

// Adam, step by step, on one batch; the loss after `steps` of them.
double overfit(ViT& model, const at::Tensor& images, const at::Tensor& labels, int steps) {
  const auto parameters = model.parameters();
  std::vector<at::Tensor> mean, square;
  for (const at::Tensor& p : parameters) {
    mean.push_back(at::zeros_like(p));
    square.push_back(at::zeros_like(p));
  }
  const auto loss = [&] { return at::cross_entropy_loss(model.forward(images), labels); };
  for (int step = 1; step <= steps; ++step) {
    model.zero_grad();
    loss().backward();
    at::NoGradGuard no_grad;
    const double rate = 0.01 * std::sqrt(1 - std::pow(0.999, step)) / (1 - std::pow(0.9, step));
    for (size_t i = 0; i < parameters.size(); ++i) {
      const at::Tensor& grad = parameters[i].grad();
      mean[i].lerp_(grad, 0.1);
      square[i].lerp_(grad.square(), 0.001);
      at::Tensor parameter = parameters[i];
      parameter.addcdiv_(mean[i], square[i].sqrt().add_(1e-8), -rate);
    }
  }
  at::NoGradGuard no_grad;
  return loss().item<double>();
}

class EveryEncodingModel : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryEncodingModel, OverfitsOneBatch) {
  ModelConfig config = tiny_config(GetParam());
  config.vit.width = 16;
  ViT model(config);
  const at::Tensor images = random_tensor({6, 2, 4, 6}, 1).to(at::kFloat);
  const at::Tensor labels = at::remainder(at::arange(6, at::kLong), 3);
  EXPECT_LT(overfit(model, images, labels, 100), 0.05);
}

// The image with its patches in another order: patch i goes to place order[i].
at::Tensor permuted(const at::Tensor& images, const std::vector<int64_t>& order, int64_t cols) {
  at::Tensor result = images.clone();
  for (size_t i = 0; i < order.size(); ++i) {
    const int64_t from = static_cast<int64_t>(i), to = order[i];
    const auto patch = [&](const at::Tensor& x, int64_t number) {
      return x.narrow(2, number / cols * 2, 2).narrow(3, number % cols * 2, 2);
    };
    patch(result, to).copy_(patch(images, from));
  }
  return result;
}

// Of all encodings only `none` may leave a model blind to where patches stand.
bool sees_positions(const std::string& encoding) {
  return encoding != "none";
}

TEST_P(EveryEncodingModel, SeesPositionsOrNot) {
  at::NoGradGuard no_grad;
  ViT model(tiny_config(GetParam()));
  model.to(at::kDouble);
  shake(model, 0.3, 2);
  const at::Tensor images = random_tensor({2, 2, 4, 6}, 3);
  const std::vector<int64_t> order{4, 0, 5, 2, 1, 3};
  const at::Tensor moved = permuted(images, order, 3);
  const double change = difference(model.forward(images), model.forward(moved));
  const at::Tensor places = at::tensor(order, at::kLong) + 2;  // two prefix tokens
  const double token_change = difference(model.forward_features(images).narrow(1, 2, 6),
                                         model.forward_features(moved).index_select(1, places));
  if (sees_positions(GetParam())) {
    EXPECT_GT(change, 1e-4);
    EXPECT_GT(token_change, 1e-4);
  } else {
    EXPECT_LT(change, 1e-12);
    EXPECT_LT(token_change, 1e-12);
  }
}

INSTANTIATE_TEST_SUITE_P(Encodings, EveryEncodingModel, ::testing::ValuesIn(all_encodings(true)),
                         [](const auto& test) { return test_name(test.param); });

}  // namespace
}  // namespace sape2::nn::testing
