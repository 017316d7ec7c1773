#pragma once

#include "sape2/nn/random_stream.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace torch::nn {
class Module;
}

namespace sape2::nn {

/// How the parameters of a new model come to be.
struct Initialisation {
  enum class Kind {
    random,         ///< drawn from the seed
    uninitialised,  ///< allocated only, to be loaded from a file
    shapes_only,    ///< on LibTorch's meta device: no memory at all, for counting
  };
  Kind kind = Kind::random;
  uint64_t seed = 0;
};

/// Writes a parameter's first values.
using Fill = std::function<void(std::span<float>, RandomStream&)>;

Fill fill_constant(double value);
Fill fill_normal(double deviation);
/// Normal, cut off at ±2 as timm's `trunc_normal_`.
Fill fill_truncated_normal(double deviation);
/// Evenly spread over [-bound, bound).
Fill fill_uniform(double bound);

enum class WeightDecay { exempt, applies };

/// Parameters that somebody else keeps, such as a module of PyTorch: parts of a model made with
/// them take them one by one, in the order in which they would register their own.
class GivenParameters {
 public:
  explicit GivenParameters(std::vector<at::Tensor> tensors) : tensors_(std::move(tensors)) {}

  /// The next one; throws Error if there is none, or if it has other sizes.
  at::Tensor take(const std::string& name, at::IntArrayRef sizes);

 private:
  std::vector<at::Tensor> tensors_;
  size_t taken_ = 0;
};

/// Where the parts of a model register their parameters: a place in the model's tree of modules. It
/// knows how to initialise, and keeps the list of parameters that weight decay applies to.
class ParameterScope {
 public:
  /// Nothing is registered or initialised: parts take the parameters that are given.
  explicit ParameterScope(GivenParameters& given) : given_(&given) {}

  ParameterScope(torch::nn::Module& owner, Initialisation initialisation,
                 std::set<std::string>& decayed)
      : owner_(&owner), initialisation_(initialisation), decayed_(&decayed) {}

  /// A place below this one: parameters there are named `name.…`.
  ParameterScope child(const std::string& name) const;

  /// Registers a float32 parameter; its first values depend on the seed and its full name only.
  at::Tensor parameter(const std::string& name, at::IntArrayRef sizes, const Fill& fill,
                       WeightDecay decay = WeightDecay::exempt);

  /// A random stream of this scope's own, for what several parameters share.
  RandomStream stream(const std::string& name) const;

 private:
  std::string full_name(const std::string& name) const;

  torch::nn::Module* owner_ = nullptr;
  Initialisation initialisation_;
  std::set<std::string>* decayed_ = nullptr;
  GivenParameters* given_ = nullptr;
  std::string path_;
};

}  // namespace sape2::nn
