// The internal operators can be called by anybody, so they check what the public ones check, and
// the backward ones what autograd hands them.
#include "support/operator_call.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

namespace sape2::testing {
namespace {

std::string said_by(const std::function<void()>& call) {
  try {
    call();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "no error";
}

/// What the operator says when one argument of a good call is replaced.
std::string says(const std::string& op, const std::string& argument, const c10::IValue& value) {
  OperatorCall call(op);
  call[argument] = value;
  return said_by([&] { call.run(); });
}

void expect_refusal(const std::string& op, const std::string& argument, const c10::IValue& value,
                    const std::string& part = "") {
  const auto said = says(op, argument, value);
  EXPECT_EQ(said.rfind(op + ": ", 0), 0U) << op << ", " << argument << ": " << said;
  EXPECT_NE(said.find(part), std::string::npos) << said;
  EXPECT_EQ(said.find('\n'), std::string::npos) << said;
}

bool has(OperatorCall& call, const std::string& argument) {
  const auto& names = call.names();
  return std::find(names.begin(), names.end(), argument) != names.end();
}

TEST(InternalErrors, GoodCallsRun) {
  for (const auto& op : public_operators()) EXPECT_NO_THROW(OperatorCall(op).run()) << op;
  for (const auto& op : internal_operators()) EXPECT_NO_THROW(OperatorCall(op).run()) << op;
}

TEST(InternalErrors, WrongSizesAreRefusedByEach) {
  constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();
  for (const auto& op : internal_operators()) {
    OperatorCall good(op);
    for (const char* name : {"rows", "cols", "prefix"}) {
      if (!has(good, name)) continue;
      for (const int64_t value : {int64_t{-1}, kLargest, -kLargest - 1})
        expect_refusal(op, name, value);
      // A stored bias may stand behind any number of prefix tokens.
      if (op != "_bias_forward" || name != std::string("prefix"))
        expect_refusal(op, name, int64_t{200});
    }
    for (const char* name :
         {"q", "k", "v", "qkv", "ux", "uy", "ex", "ey", "e", "gain", "gate_scale"}) {
      if (!has(good, name)) continue;
      const at::Tensor tensor = good[name].toTensor();
      expect_refusal(op, name, at::zeros({2, 3, 5, 8}));
      expect_refusal(op, name, at::zeros({7}));
      expect_refusal(op, name, tensor.to(at::kLong));
      expect_refusal(op, name, tensor.to(at::kMeta), "");
    }
  }
}

TEST(InternalErrors, WordsAndNumbersAreChecked) {
  for (const auto& op : internal_operators()) {
    OperatorCall good(op);
    if (has(good, "form")) expect_refusal(op, "form", "cosine", "form is \"cosine\"; one of");
    if (has(good, "mode")) expect_refusal(op, "mode", "kq", "mode is \"kq\"; one of");
    if (has(good, "span")) expect_refusal(op, "span", "", "span is \"\"; one of");
    // On one line, and nothing for a terminal to obey.
    if (has(good, "form"))
      expect_refusal(op, "form", "a\nb\x1b[31m", "form is \"a\\x0ab\\x1b[31m\"; one of");
    if (has(good, "heads")) {
      expect_refusal(op, "heads", int64_t{0}, "heads is 0; at least 1");
      expect_refusal(op, "heads", int64_t{5}, "qkv [2, 7, 72] does not fit; [images, tokens, 3·5·");
    }
    if (has(good, "kept")) expect_refusal(op, "kept", int64_t{8}, "kept is 8 on cpu; 0");
    if (has(good, "scale")) expect_refusal(op, "scale", INFINITY, "scale is inf; a finite");
  }
  expect_refusal("_sape2_attention_forward", "form", "none", "form is \"none\"");
  expect_refusal("_attention_forward", "form", "none", "leave them out");
  expect_refusal("_attention_forward", "ux", {}, "ux is an undefined tensor");
}

TEST(InternalErrors, BackwardChecksWhatItIsHanded) {
  for (const auto& op : internal_operators()) {
    OperatorCall good(op);
    if (!has(good, "grads")) continue;
    expect_refusal(op, "wanted", int64_t{1} << 40, "gradients of tensors that are not given");
    expect_refusal(op, "wanted", int64_t{-1}, "gradients of tensors that are not given");
    for (const char* name : {"grads", "outputs"}) {
      expect_refusal(op, name, std::vector<at::Tensor>(), "there are 0 ");
      auto list = good[name].toTensorVector();
      for (at::Tensor& each : list) {
        const at::Tensor right = each;
        each = right.narrow(2, 0, right.dim() == 3 ? 0 : 1);
        if (right.dim() == 4) expect_refusal(op, name, list, "] does not fit the other arguments");
        each = right.to(at::kDouble);
        expect_refusal(op, name, list, " was expected");
        each = at::Tensor();
        expect_refusal(op, name, list, "is an undefined tensor");
        each = right;
      }
    }
  }
  // A gradient of what was not given.
  OperatorCall call("_attention_backward");
  call["gain"] = c10::IValue();
  call["wanted"] = int64_t{1} << 5;
  EXPECT_NE(said_by([&] { call.run(); }).find("not given"), std::string::npos);
}

TEST(InternalErrors, WhatAKernelRefusesNamesTheOperator) {
  OperatorCall call("_sape2_attention_forward");
  for (const char* name : {"q", "k", "v"}) call[name] = at::zeros({1, 1, 40000, 8});
  for (const char* name : {"gain", "gate_scale", "gate_offset"}) call[name] = c10::IValue();
  call["rows"] = int64_t{40000};
  call["cols"] = int64_t{1};
  call["prefix"] = int64_t{0};
  EXPECT_EQ(said_by([&] { call.run(); }).rfind("_sape2_attention_forward: rows is 40000; ", 0), 0U);
}

TEST(Scale, ErrorsNameTheOperator) {
  for (const auto& op : public_operators()) {
    OperatorCall good(op);
    if (!has(good, "scale")) continue;
    for (const double value : {double(INFINITY), double(NAN)})
      expect_refusal(op, "scale", value, "; a finite number was expected");
    for (const double value : {1e39, -1e300})
      expect_refusal(op, "scale", value, ", which float32 cannot hold");
    // Too small for float32: as good as 0, and no error.
    for (const double value : {0.0, 1e-60, -1e-60, 1e-40}) {
      OperatorCall small(op), none(op);
      for (const auto& name : small.names()) none[name] = small[name];
      small["scale"] = value;
      none["scale"] = 0.0;
      const auto outputs = small.run(), expected = none.run();
      EXPECT_TRUE(at::allclose(outputs[0], expected[0], 1e-5, 1e-5)) << op << " " << value;
    }
  }
  OperatorCall wide("attention");
  for (const char* name : {"q", "k", "v"}) wide[name] = wide[name].toTensor().to(at::kDouble);
  wide["scale"] = 1e39;
  EXPECT_NO_THROW(wide.run());
}

TEST(AlreadyChecked, HoldsForOneCallOfTheVeryArguments) {
  // The public operator's check must not excuse the next internal call.
  OperatorCall(std::string("distance_attention")).run();
  expect_refusal("_attention_forward", "rows", int64_t{200});
}

}  // namespace
}  // namespace sape2::testing
