// Attention with given gates against the operators that compute their own.
#include "sape2/ops/gates.h"

#include "support/sape2_case.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <limits>

namespace sape2::testing {
namespace {

constexpr double kExactly = 1e-10;

at::Tensor with_gates(const Sape2Case& given, const ops::Gates& gates) {
  return ops::sape2_attention_with_gates(given.q, given.k, given.v, given.ex, given.ey, given.grid,
                                         gates, given.vector_options, given.form,
                                         given.bias_options);
}

at::Tensor attention_of(const Sape2Case& given, const ops::VectorOptions& vectors) {
  return ops::sape2_attention(given.q, given.k, given.v, given.ex, given.ey, given.grid, vectors,
                              given.form, given.bias_options);
}

TEST(Gates, ItsOwnGatesGiveTheAttentionOfEveryGoldenCase) {
  const at::NoGradGuard no_grad;
  for (const auto& golden : golden_cases("sape2")) {
    SCOPED_TRACE(golden.name);
    const Sape2Case given(golden, at::kDouble);
    const ops::Gates own = ops::sape2_gates(given.q, given.k, given.grid, given.vector_options);
    EXPECT_LE(relative_error(with_gates(given, own), attention_of(given, given.vector_options)),
              kExactly);
  }
}

TEST(Gates, AllOnesAreOpenGates) {
  const at::NoGradGuard no_grad;
  for (const auto& golden : golden_cases("sape2")) {
    SCOPED_TRACE(golden.name);
    const Sape2Case given(golden, at::kDouble);
    const ops::Gates own = ops::sape2_gates(given.q, given.k, given.grid, given.vector_options);
    // Of one image, for all.
    const ops::Gates open{at::ones_like(own.x).narrow(0, 0, 1),
                          at::ones_like(own.y).narrow(0, 0, 1)};
    ops::VectorOptions options = given.vector_options;
    options.gate_scale = at::zeros({}, at::kDouble);
    options.gate_offset = at::full({}, std::numeric_limits<double>::infinity(), at::kDouble);
    EXPECT_LE(relative_error(with_gates(given, open), attention_of(given, options)), kExactly);
  }
}

TEST(Gates, OfAnotherShapeAreRefused) {
  const Sape2Case given(golden_cases("sape2").front(), at::kDouble);
  ops::Gates gates = ops::sape2_gates(given.q, given.k, given.grid, given.vector_options);
  gates.x = gates.x.narrow(2, 0, 1);
  try {
    with_gates(given, gates);
    FAIL() << "gates of another grid were taken";
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what()).find("gates.x"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace sape2::testing
