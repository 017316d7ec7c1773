#include "sape2/ops/training.h"

#include "ops/training/gradient_queue.h"
#include "ops/training/kernels.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

namespace sape2::ops {
namespace {

using at::Tensor;
using Tensors = torch::autograd::variable_list;
using Context = torch::autograd::AutogradContext;

Tensor as_matrix(const Tensor& x) {
  return x.reshape({-1, x.size(-1)});
}

/// The queue that was there in the forward pass: backward passes run on threads of LibTorch's.
struct KeptQueue : torch::CustomClassHolder {
  explicit KeptQueue(std::shared_ptr<GradientQueue> kept) : queue(std::move(kept)) {}
  std::shared_ptr<GradientQueue> queue;
};

void keep_queue(Context* context) {
  if (auto queue = current_gradient_queue())
    context->saved_data["queue"] =
        c10::IValue::make_capsule(c10::make_intrusive<KeptQueue>(std::move(queue)));
}

/// Null where gradients are computed on the spot: there was no queue, or they are to be added to
/// earlier ones.
GradientQueue* queue_for(Context* context, const Tensor& weight) {
  const auto kept = context->saved_data.find("queue");
  if (kept == context->saved_data.end() || c10::GradMode::is_enabled()) return nullptr;
  if (weight.is_leaf() && weight.grad().defined()) return nullptr;
  return static_cast<KeptQueue*>(kept->second.toCapsule().get())->queue.get();
}

Tensor weight_gradient(Context* context, const Tensor& dy, const Tensor& x, const Tensor& weight) {
  GradientQueue* const queue = queue_for(context, weight);
  // What the weight was computed from may want to read the gradient.
  return queue == nullptr ? at::mm(dy.t(), x) : queue->weight_gradient(dy, x, weight.is_leaf());
}

Tensor bias_gradient(Context* context, const Tensor& dy, const Tensor& weight) {
  GradientQueue* const queue = queue_for(context, weight);
  return queue == nullptr ? fused::column_sums(dy) : queue->bias_gradient(dy);
}

/// A linear layer whose bias's gradient is one pass over the output's.
struct Linear : torch::autograd::Function<Linear> {
  /// Takes weight and, where it is to be added here, bias.
  static Tensor forward(Context* context, const Tensor& x, at::TensorList parameters) {
    context->save_for_backward({x, parameters[0]});
    context->saved_data["wants_x"] = x.requires_grad();
    context->saved_data["wants_bias"] = parameters.size() == 2;
    keep_queue(context);
    return parameters.size() == 2 ? at::linear(x, parameters[0], parameters[1])
                                  : at::linear(x, parameters[0]);
  }
  static Tensors backward(Context* context, const Tensors& grads) {
    const auto saved = context->get_saved_variables();
    const Tensor dy = as_matrix(grads[0]), x = as_matrix(saved[0]);
    Tensors result{Tensor(), weight_gradient(context, dy, x, saved[1])};
    if (context->saved_data["wants_bias"].toBool())
      result.push_back(bias_gradient(context, dy, saved[1]));
    if (context->saved_data["wants_x"].toBool())
      result[0] = at::mm(dy, saved[1]).view(saved[0].sizes());
    return result;
  }
};

/// Two linear layers with a GELU between them, without the second one's bias.
struct Mlp : torch::autograd::Function<Mlp> {
  /// Takes the first layer's weight and bias and the second one's weight.
  static Tensor forward(Context* context, const Tensor& x, at::TensorList parameters,
                        bool differentiates) {
    const auto [hidden, derivative] =
        fused::linear_gelu(x, parameters[0], parameters[1], differentiates);
    context->save_for_backward({x, parameters[0], parameters[2], hidden, derivative});
    context->saved_data["wants_x"] = x.requires_grad();
    keep_queue(context);
    return at::linear(hidden, parameters[2]);
  }
  static Tensors backward(Context* context, const Tensors& grads) {
    const auto saved = context->get_saved_variables();
    const Tensor &x = saved[0], &first = saved[1], &second = saved[2];
    const Tensor dy = as_matrix(grads[0]);
    const Tensor dsecond = weight_gradient(context, dy, as_matrix(saved[3]), second);
    const auto [dhidden, dbias] = fused::linear_gelu_backward(dy, second, as_matrix(saved[4]));
    const Tensor dfirst = weight_gradient(context, dhidden, as_matrix(x), first);
    Tensor dx;
    if (context->saved_data["wants_x"].toBool()) dx = at::mm(dhidden, first).view(x.sizes());
    return {dx, dfirst, dbias, dsecond, Tensor()};
  }
};

bool fused_linear(const Tensor& x, const Tensor& weight) {
  return fused_training(x) && weight.size(0) % 4 == 0;
}

bool fused_mlp(const Tensor& x, const MlpWeights& w) {
  const auto same_type = [&](const Tensor& tensor) {
    return tensor.scalar_type() == x.scalar_type();
  };
  return fused_training(x) && same_type(w.first) && same_type(w.first_bias) &&
         same_type(w.second) && fused::linear_serves(x, w.first.size(1), w.first.size(0)) &&
         fused::linear_serves(x, w.second.size(0), w.first.size(0));
}

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return fused_linear(x, weight) ? Linear::apply(x, at::TensorList({weight, bias}))
                                 : at::linear(x, weight, bias);
}

Branch linear_branch(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  if (!fused_linear(x, weight)) return {at::linear(x, weight, bias), {}, {}};
  return {Linear::apply(x, at::TensorList({weight})), bias, {}};
}

Branch mlp(const Tensor& x, const MlpWeights& w) {
  if (!fused_mlp(x, w))
    return linear_branch(gelu(linear_branch(x, w.first, w.first_bias)), w.second, w.second_bias);
  const bool differentiates =
      c10::GradMode::is_enabled() && (x.requires_grad() || w.first.requires_grad() ||
                                      w.first_bias.requires_grad() || w.second.requires_grad());
  return {Mlp::apply(x, at::TensorList({w.first, w.first_bias, w.second}), differentiates),
          w.second_bias,
          {}};
}

}  // namespace sape2::ops
