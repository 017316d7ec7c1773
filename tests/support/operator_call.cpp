#include "support/operator_call.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <optional>
#include <stdexcept>

namespace sape2::testing {
namespace {

constexpr int64_t kImages = 2, kHeads = 3, kRows = 3, kCols = 2, kPrefix = 1, kHeadSize = 8;
constexpr int64_t kPatches = kRows * kCols, kTokens = kPrefix + kPatches;

c10::OperatorHandle handle(const std::string& name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(("sape2::" + name).c_str(), "");
}

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

at::Tensor tokens() {
  return at::randn({kImages, kHeads, kTokens, kHeadSize});
}

c10::IValue tensor_argument(const std::string& name) {
  if (name == "ex" || name == "ey" || name == "e") return at::randn({5, kHeadSize});
  if (name == "ux" || name == "zx") return at::randn({kImages, kHeads, kPatches, kCols});
  if (name == "uy" || name == "zy") return at::randn({kImages, kHeads, kPatches, kRows});
  if (name == "fx" || name == "fy") return at::randn({kHeads, kHeadSize / 2});
  if (name == "gain" || name == "gate_scale" || name == "gate_offset") return at::rand({kHeads});
  if (name == "patches") return at::randn({kPatches, kHeadSize});
  if (name == "tokens") return at::randn({kImages, kTokens, kHeads * kHeadSize});
  if (name == "qkv") return at::randn({kImages, kTokens, 3 * kHeads * kHeadSize});
  if (name == "carried") return at::empty({0});
  return tokens();
}

/// Of the operators that the Python package adds; nothing if it is none of their own.
std::optional<c10::IValue> package_argument(const c10::Argument& wanted, const std::string& op) {
  const std::string& name = wanted.name();
  if (name == "encoding") return "sape2-k+ape";
  if (name == "shape")
    return std::vector<int64_t>{kHeads * kHeadSize, kHeads, kRows, kCols, kPrefix};
  if (name == "json" || name == "config") return OperatorCall("_preset").text();
  if (name == "name") return "vit-micro";
  if (name == "path") return op == "_encoding_parameters" ? "blocks.0.attn" : "/dev/null/no file";
  if (name == "of_layer") return true;
  if (name == "seed") return int64_t{0};
  if (name == "patches" && op == "_encoded_rows") return std::vector<int64_t>{0, kPatches - 1};
  if (name == "parameters") {
    OperatorCall first("_encoding_parameters");
    first["of_layer"] = op != "_encoded_input";
    return first.run();
  }
  return std::nullopt;
}

/// Of kernel_for.
std::optional<c10::IValue> query_argument(const std::string& name) {
  if (name == "op") return "sape2_attention";
  if (name == "images" || name == "heads") return int64_t{2};
  if (name == "head_size") return int64_t{64};
  if (name == "dtype") return "bfloat16";
  if (name == "form") return "direct";
  if (name == "span") return c10::IValue();
  if (name == "positions") return int64_t{0};
  if (name == "backward") return false;
  if (name == "device") return "sm_90";
  return std::nullopt;
}

c10::IValue argument(const std::string& name) {
  if (name == "rows") return kRows;
  if (name == "cols") return kCols;
  if (name == "prefix") return kPrefix;
  if (name == "heads") return kHeads;
  if (name == "kept") return int64_t{0};
  if (name == "mode") return "k";
  if (name == "span") return "suffix";
  if (name == "form") return "distance";
  if (name == "scale") return 0.35;
  if (name == "gate_divisor") return 1.5;
  if (name == "bias_inside") return true;
  return tensor_argument(name);
}

}  // namespace

OperatorCall::OperatorCall(const std::string& name) : name_(name) {
  const bool backward = ends_with(name, "_backward");
  for (const auto& each : handle(name).schema().arguments()) {
    names_.push_back(each.name());
    const auto own =
        name == "kernel_for" ? query_argument(each.name()) : package_argument(each, name);
    if (own) {
      values_.push_back(*own);
      continue;
    }
    const bool given_later = each.name() == "grads" || each.name() == "outputs";
    values_.push_back(given_later               ? c10::IValue(std::vector<at::Tensor>())
                      : each.name() == "wanted" ? c10::IValue(int64_t{0b11})
                                                : argument(each.name()));
  }
  if (!backward) return;
  // What the forward operator gives for the same arguments.
  OperatorCall forward(name.substr(0, name.size() - 9) + "_forward");
  for (const auto& each : forward.names_) forward[each] = (*this)[each];
  const auto outputs = forward.run();
  const size_t differentiable = name == "_sape2_vectors_backward" ? 2 : 1;
  std::vector<at::Tensor> grads;
  for (size_t i = 0; i < differentiable; ++i) grads.push_back(at::randn_like(outputs[i]));
  (*this)["grads"] = grads;
  (*this)["outputs"] = outputs;
}

c10::IValue& OperatorCall::operator[](const std::string& argument) {
  const auto found = std::find(names_.begin(), names_.end(), argument);
  if (found == names_.end()) throw std::out_of_range(name_ + " has no argument " + argument);
  return values_[found - names_.begin()];
}

torch::jit::Stack OperatorCall::results() const {
  torch::jit::Stack stack = values_;
  handle(name_).callBoxed(&stack);
  return stack;
}

std::vector<at::Tensor> OperatorCall::run() const {
  std::vector<at::Tensor> outputs;
  for (const c10::IValue& value : results()) {
    if (value.isTensorList()) {
      const auto list = value.toTensorVector();
      outputs.insert(outputs.end(), list.begin(), list.end());
    } else if (value.isTensor()) {
      outputs.push_back(value.toTensor());
    }
  }
  return outputs;
}

std::string OperatorCall::text() const {
  return results().at(0).toStringRef();
}

const std::vector<std::string>& public_operators() {
  static const std::vector<std::string> names = {
      "attention",       "sape2_attention", "sape2_vectors",  "distance_attention",
      "axial_attention", "sape2_bias",      "cope_attention", "rope",
      "rope2d",          "rope2d_mixed"};
  return names;
}

const std::vector<std::string>& package_operators() {
  static const std::vector<std::string> names = {"kernel_for",
                                                 "_sape2_attention",
                                                 "_packed_sape2_attention",
                                                 "_encoded_attention",
                                                 "_encoded_packed_attention",
                                                 "_encoded_rows",
                                                 "_chosen_patches",
                                                 "_encoded_input",
                                                 "_encoding",
                                                 "_encoded_layer_input",
                                                 "_encoding_parameters",
                                                 "_model_config",
                                                 "_preset",
                                                 "_decayed_parameters",
                                                 "_model_parameters",
                                                 "_load_model"};
  return names;
}

const std::vector<std::string>& internal_operators() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const char* name : {"_attention", "_sape2_attention", "_packed_sape2_attention",
                             "_cope_attention", "_sape2_vectors", "_bias"})
      for (const char* pass : {"_forward", "_backward"}) all.push_back(std::string(name) + pass);
    return all;
  }();
  return names;
}

}  // namespace sape2::testing
