#include "sape2/ops/training.h"

#include "ops/operators/autograd.h"
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

/// The queue that was there in the forward pass: backward passes run on threads of LibTorch's. Not
/// longer than its GradientsBeside: afterwards nobody could join it.
struct KeptQueue : torch::CustomClassHolder {
  explicit KeptQueue(const std::shared_ptr<GradientQueue>& kept) : queue(kept) {}
  std::weak_ptr<GradientQueue> queue;
};

void keep_queue(Context* context) {
  if (const auto queue = current_gradient_queue())
    context->saved_data["queue"] = c10::IValue::make_capsule(c10::make_intrusive<KeptQueue>(queue));
}

/// The gradients of a layer's parameters: through the queue where there still is one, and where
/// nobody reads them before they are there; otherwise computed on the spot.
class ParameterGradients {
 public:
  explicit ParameterGradients(Context* context) {
    const auto kept = context->saved_data.find("queue");
    // With create_graph=True autograd copies every gradient.
    if (kept == context->saved_data.end() || c10::GradMode::is_enabled()) return;
    queue_ = static_cast<KeptQueue*>(kept->second.toCapsule().get())->queue.lock();
  }
  Tensor of_weight(const Tensor& weight, const Tensor& dy, const Tensor& x) const {
    return may_wait(weight, dy) ? queue_->weight_gradient(dy, x) : at::mm(dy.t(), x);
  }
  Tensor of_bias(const Tensor& bias, const Tensor& dy) const {
    return may_wait(bias, dy) ? queue_->bias_gradient(dy) : fused::column_sums(dy);
  }

 private:
  bool may_wait(const Tensor& parameter, const Tensor& dy) const {
    return queue_ != nullptr && queue_->device() == dy.device() &&
           takes_over(parameter, dy.scalar_type());
  }

  std::shared_ptr<GradientQueue> queue_;
};

/// A linear layer whose bias's gradient is one pass over the output's.
struct Linear : torch::autograd::Function<Linear> {
  /// Takes weight and, where it is to be added here, bias.
  static Tensor forward(Context* context, const Tensor& x, at::TensorList parameters) {
    Tensors saved{x};
    saved.insert(saved.end(), parameters.begin(), parameters.end());
    context->save_for_backward(saved);
    context->saved_data["wants_x"] = x.requires_grad();
    keep_queue(context);
    return parameters.size() == 2 ? at::linear(x, parameters[0], parameters[1])
                                  : at::linear(x, parameters[0]);
  }
  static Tensors backward(Context* context, const Tensors& grads) {
    const auto saved = context->get_saved_variables();
    const ParameterGradients gradients(context);
    return once_only(saved, grads, [&] {
      const Tensor dy = as_matrix(grads[0]), x = as_matrix(saved[0]);
      Tensors result{Tensor(), gradients.of_weight(saved[1], dy, x)};
      if (saved.size() == 3) result.push_back(gradients.of_bias(saved[2], dy));
      if (context->saved_data["wants_x"].toBool())
        result[0] = at::mm(dy, saved[1]).view(saved[0].sizes());
      return result;
    });
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
    const ParameterGradients gradients(context);
    return once_only(saved, grads, [&]() -> Tensors {
      const Tensor &x = saved[0], &first = saved[1], &second = saved[2];
      const Tensor dy = as_matrix(grads[0]);
      const Tensor dsecond = gradients.of_weight(second, dy, as_matrix(saved[3]));
      const auto [dhidden, dbias] = fused::linear_gelu_backward(dy, second, as_matrix(saved[4]));
      const Tensor dfirst = gradients.of_weight(first, dhidden, as_matrix(x));
      Tensor dx;
      if (context->saved_data["wants_x"].toBool()) dx = at::mm(dhidden, first).view(x.sizes());
      return {dx, dfirst, dbias, dsecond, Tensor()};
    });
  }
};

bool fused_linear(const Tensor& x, const Tensor& weight) {
  return fused_training(x) && weight.size(0) % 4 == 0;
}

/// What does not fit together is left to LibTorch's operators, which say so.
bool fused_mlp(const Tensor& x, const MlpWeights& w) {
  const auto fits = [&](const Tensor& tensor, at::IntArrayRef sizes) {
    return tensor.defined() && tensor.scalar_type() == x.scalar_type() &&
           tensor.device() == x.device() && tensor.sizes() == sizes;
  };
  if (!fused_training(x) || w.first.dim() != 2 || w.second.dim() != 2) return false;
  const int64_t inputs = x.size(-1), hidden = w.first.size(0), outputs = w.second.size(0);
  return fits(w.first, {hidden, inputs}) && fits(w.first_bias, {hidden}) &&
         fits(w.second, {outputs, hidden}) && fused::linear_serves(x, inputs, hidden) &&
         fused::linear_serves(x, outputs, hidden);
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
