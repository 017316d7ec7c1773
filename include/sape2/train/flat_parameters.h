#pragma once

#include "sape2/io/tensor_file.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace sape2::nn {
class ViT;
}

namespace sape2::train {

/// All parameters of a model in one block of memory, so that the optimiser, clipping and averaging
/// are a few passes over one array on every device. Parameters become views of it.
///
/// In bfloat16 the model computes with rounded copies of its linear layers and norms; the block
/// keeps the float32 master weights. Parameters of position encodings are small, sensitive and
/// exempt: they stay float32.
class FlatParameters {
 public:
  /// Takes over the parameters of `model`, which must outlive this object and stay on its device.
  FlatParameters(nn::ViT& model, at::ScalarType compute_type);

  /// All weights in float32; those that decay come first. `(size)`
  const at::Tensor& weights() const { return weights_; }
  /// Their gradients in float32, laid out alike. `(size)`
  const at::Tensor& gradients() const { return gradients_; }
  /// How many leading elements weight decay applies to.
  int64_t decayed() const { return decayed_; }
  int64_t size() const { return weights_.numel(); }
  at::ScalarType compute_type() const { return compute_type_; }

  /// Before the first backward pass of a step: forgets all gradients.
  void forget_gradients();
  /// After each backward pass: adds the parameters' gradients to gradients().
  void collect_gradients();

  /// A parameter and where it begins in the block.
  struct Slot {
    std::string name;
    at::Tensor parameter;
    int64_t offset = 0;
    bool rounded = false;
  };
  /// In the order of the block.
  const std::vector<Slot>& slots() const { return slots_; }
  /// The same as collect_gradients() piece by piece: slots `first` … `end` − 1, and once all have
  /// been collected, all_collected().
  void collect_gradients(int64_t first, int64_t end);
  void all_collected() { collected_ = true; }

  /// The rounded copies of the leading weights, which must follow them; undefined in float32.
  const at::Tensor& rounded_weights() const { return rounded_weights_; }
  /// After a change of weights() by anyone but the optimiser: rounds the copies anew.
  void publish_weights();

  /// Zeros laid out as the weights are.
  at::Tensor zeros() const;
  /// The parts of such a tensor by parameter name; changing them changes it.
  io::NamedTensors views(const at::Tensor& flat) const;

 private:
  std::vector<Slot> slots_;
  at::ScalarType compute_type_;
  int64_t decayed_ = 0;
  int64_t rounded_ = 0;  // leading elements that have rounded copies
  at::Tensor weights_, gradients_;
  at::Tensor rounded_weights_;  // (rounded_), bfloat16 only
  bool collected_ = false;      // gradients_ holds some of this step
};

/// Copies weights, given by name, into a model of the same configuration.
void copy_weights(const io::NamedTensors& weights, nn::ViT& model);

}  // namespace sape2::train
