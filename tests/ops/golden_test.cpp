// Every golden case: values, intermediates and all gradients, in float64 and float32.
#include "sape2/ops/ops.h"

#include "support/sape2_case.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace sape2::testing {
namespace {

struct Precision {
  at::ScalarType type;
  double tolerance;
};
constexpr Precision kDouble{at::kDouble, 1e-10}, kFloat{at::kFloat, 1e-5};

void expect_near(const char* what, const at::Tensor& actual, const at::Tensor& expected,
                 const Precision& precision) {
  ASSERT_EQ(actual.scalar_type(), precision.type) << what;
  ASSERT_EQ(actual.sizes(), expected.sizes()) << what;
  EXPECT_LE(relative_error(actual, expected), precision.tolerance) << what;
}

void expect_gradients(const std::map<std::string, at::Tensor>& leaves, const GoldenCase& golden,
                      const Precision& precision) {
  for (const auto& [name, leaf] : leaves) {
    ASSERT_TRUE(leaf.grad().defined()) << name;
    expect_near(("d" + name).c_str(), leaf.grad(), golden.tensors.at("d" + name), precision);
  }
}

void run_sape2(const Precision& precision) {
  const auto cases = golden_cases("sape2");
  ASSERT_EQ(cases.size(), 14U);
  for (const auto& golden : cases) {
    SCOPED_TRACE(golden.name);
    const Sape2Case given(golden, precision.type);
    const auto out = given.attention();
    expect_near("out", out, golden.tensors.at("out"), precision);
    expect_near("bias", given.bias(), golden.tensors.at("bias"), precision);
    const auto [ux, uy] = given.vectors();
    const bool both = given.vector_options.mode == "qk";
    for (const auto& part :
         both ? std::vector<std::string>{"q", "k"} : std::vector<std::string>{""}) {
      const auto of = [&](const at::Tensor& u) { return both ? u[part == "k"] : u; };
      expect_near("ux", of(ux), golden.tensors.at("ux" + part), precision);
      expect_near("uy", of(uy), golden.tensors.at("uy" + part), precision);
    }
    out.backward(golden.tensors.at("dout").to(precision.type));
    expect_gradients(given.leaves, golden, precision);
  }
}

std::map<std::string, at::Tensor> leaves_of(const GoldenCase& golden,
                                            const std::vector<std::string>& names,
                                            at::ScalarType type) {
  std::map<std::string, at::Tensor> leaves;
  for (const auto& name : names)
    leaves[name] = golden.tensors.at(name).to(type).clone().requires_grad_();
  return leaves;
}

void run_cope(const Precision& precision) {
  const auto golden = load_golden("cope");
  auto leaves = leaves_of(golden, {"q", "k", "v", "e"}, precision.type);
  const auto out = ops::cope_attention(leaves["q"], leaves["k"], leaves["v"], leaves["e"],
                                       golden.number("scale"));
  expect_near("out", out, golden.tensors.at("out"), precision);
  out.backward(golden.tensors.at("dout").to(precision.type));
  expect_gradients(leaves, golden, precision);
}

void run_rotary(const std::string& name, const Precision& precision) {
  SCOPED_TRACE(name);
  const auto golden = load_golden(name);
  const bool mixed = name == "rope2d_mixed";
  auto names = std::vector<std::string>{"q", "k", "v"};
  if (mixed) names.insert(names.end(), {"fx", "fy"});
  auto leaves = leaves_of(golden, names, precision.type);
  const ops::Grid grid{golden.integer("H"), golden.integer("W"), golden.integer("P")};
  const auto rotate = [&](const at::Tensor& x) {
    return mixed ? ops::rope2d_mixed(x, leaves["fx"], leaves["fy"], grid) : ops::rope2d(x, grid);
  };
  const auto q = rotate(leaves["q"]), k = rotate(leaves["k"]);
  expect_near("q_rotated", q, golden.tensors.at("q_rotated"), precision);
  expect_near("k_rotated", k, golden.tensors.at("k_rotated"), precision);
  const auto out = ops::attention(q, k, leaves["v"], golden.number("scale"));
  expect_near("out", out, golden.tensors.at("out"), precision);
  out.backward(golden.tensors.at("dout").to(precision.type));
  expect_gradients(leaves, golden, precision);
}

TEST(Golden, Sape2InFloat64) {
  run_sape2(kDouble);
}
TEST(Golden, Sape2InFloat32) {
  run_sape2(kFloat);
}
TEST(Golden, Sape2ReferenceInFloat32) {
  const ops::ReferenceGuard guard;
  run_sape2(kFloat);
}
TEST(Golden, CopeInFloat64) {
  run_cope(kDouble);
}
TEST(Golden, CopeInFloat32) {
  run_cope(kFloat);
}
TEST(Golden, RotaryInFloat64) {
  run_rotary("rope2d", kDouble);
  run_rotary("rope2d_mixed", kDouble);
}
TEST(Golden, RotaryInFloat32) {
  run_rotary("rope2d", kFloat);
  run_rotary("rope2d_mixed", kFloat);
}

}  // namespace
}  // namespace sape2::testing
