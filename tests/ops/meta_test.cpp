// Meta tensors: shapes and types of every operator without values, forward and backward.
#include "sape2/ops/ops.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace sape2::testing {
namespace {

const ops::Grid kGrid{3, 4, 1};

at::Tensor meta(at::IntArrayRef shape, at::ScalarType type = at::kFloat) {
  return at::empty(shape, at::TensorOptions().dtype(type).device(at::kMeta)).requires_grad_();
}

/// The operator's result on Meta tensors has the shape and type of the one on real tensors, and
/// gradients of the inputs' shapes flow back.
template <class Run>
void expect_same_shapes(Run run, const std::vector<std::vector<int64_t>>& shapes) {
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    std::vector<at::Tensor> real, abstract;
    for (const auto& shape : shapes) {
      real.push_back(at::zeros(shape, type));
      abstract.push_back(meta(shape, type));
    }
    const auto expected = run(real), actual = run(abstract);
    EXPECT_TRUE(actual.is_meta());
    EXPECT_EQ(actual.sizes(), expected.sizes());
    EXPECT_EQ(actual.scalar_type(), expected.scalar_type());
    actual.backward(at::empty_like(actual));
    for (const auto& input : abstract) {
      ASSERT_TRUE(input.grad().defined());
      EXPECT_EQ(input.grad().sizes(), input.sizes());
    }
  }
}

TEST(Meta, EveryOperator) {
  const std::vector<int64_t> q = {2, 3, 13, 8}, table = {5, 8}, ux = {2, 3, 12, 4},
                             uy = {2, 3, 12, 3};
  using Inputs = const std::vector<at::Tensor>&;
  expect_same_shapes([](Inputs x) { return ops::attention(x[0], x[1], x[2]); }, {q, q, q});
  expect_same_shapes(
      [](Inputs x) { return ops::sape2_attention(x[0], x[1], x[2], x[3], x[4], kGrid); },
      {q, q, q, table, table});
  expect_same_shapes(
      [](Inputs x) {
        return ops::sape2_vectors(x[0], x[1], x[2], x[3], kGrid).second + 0 * x[2].sum();
      },
      {q, q, table, table});
  expect_same_shapes([](Inputs x) { return ops::sape2_bias(x[0], x[1], x[2], x[3], kGrid); },
                     {q, q, table, table});
  expect_same_shapes(
      [](Inputs x) { return ops::distance_attention(x[0], x[1], x[2], x[3], x[4], kGrid); },
      {q, q, q, ux, uy});
  expect_same_shapes(
      [](Inputs x) { return ops::axial_attention(x[0], x[1], x[2], x[3], x[4], kGrid); },
      {q, q, q, ux, uy});
  expect_same_shapes([](Inputs x) { return ops::cope_attention(x[0], x[1], x[2], x[3]); },
                     {q, q, q, table});
  expect_same_shapes([](Inputs x) { return ops::rope(x[0], 1); }, {q});
  expect_same_shapes([](Inputs x) { return ops::rope2d(x[0], kGrid); }, {q});
  expect_same_shapes([](Inputs x) { return ops::rope2d_mixed(x[0], x[1], x[2], kGrid); },
                     {q, {3, 4}, {3, 4}});
}

}  // namespace
}  // namespace sape2::testing
