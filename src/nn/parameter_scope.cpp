#include "sape2/nn/parameter_scope.h"

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>
#include <sstream>

namespace sape2::nn {

Fill fill_constant(double value) {
  return [value](std::span<float> data, RandomStream&) {
    std::ranges::fill(data, static_cast<float>(value));
  };
}

Fill fill_normal(double deviation) {
  return [deviation](std::span<float> data, RandomStream& stream) {
    for (float& x : data) x = static_cast<float>(deviation * stream.normal());
  };
}

Fill fill_truncated_normal(double deviation) {
  return [deviation](std::span<float> data, RandomStream& stream) {
    for (float& x : data) {
      do {
        x = static_cast<float>(deviation * stream.normal());
      } while (std::abs(x) > 2);
    }
  };
}

Fill fill_uniform(double bound) {
  return [bound](std::span<float> data, RandomStream& stream) {
    for (float& x : data) x = static_cast<float>(bound * (2 * stream.uniform() - 1));
  };
}

at::Tensor GivenParameters::take(const std::string& name, at::IntArrayRef sizes) {
  if (taken_ == tensors_.size()) {
    throw Error("parameter " + in_quotes(name) + " was not given; there are " +
                std::to_string(tensors_.size()));
  }
  const at::Tensor& tensor = tensors_[taken_++];
  // Named only where they differ: this is on the way of every call.
  if (!tensor.defined() || tensor.sizes() != sizes) {
    std::ostringstream shapes;
    shapes << (tensor.defined() ? tensor.sizes() : at::IntArrayRef()) << ", expected " << sizes;
    throw Error("parameter " + in_quotes(name) + " has the shape " + shapes.str());
  }
  return tensor;
}

ParameterScope ParameterScope::child(const std::string& name) const {
  ParameterScope scope = *this;
  scope.path_ = full_name(name) + ".";
  if (given_) return scope;
  scope.owner_ = owner_->register_module(name, std::make_shared<torch::nn::Module>()).get();
  return scope;
}

at::Tensor ParameterScope::parameter(const std::string& name, at::IntArrayRef sizes,
                                     const Fill& fill, WeightDecay decay) {
  if (given_) return given_->take(full_name(name), sizes);
  const bool meta = initialisation_.kind == Initialisation::Kind::shapes_only;
  at::Tensor tensor = at::empty(sizes, at::device(meta ? at::kMeta : at::kCPU).dtype(at::kFloat));
  if (initialisation_.kind == Initialisation::Kind::random) {
    RandomStream random = stream(name);
    fill({tensor.data_ptr<float>(), static_cast<size_t>(tensor.numel())}, random);
  }
  if (decay == WeightDecay::applies) decayed_->insert(full_name(name));
  return owner_->register_parameter(name, tensor);
}

RandomStream ParameterScope::stream(const std::string& name) const {
  return {initialisation_.seed, full_name(name)};
}

std::string ParameterScope::full_name(const std::string& name) const {
  return path_ + name;
}

}  // namespace sape2::nn
