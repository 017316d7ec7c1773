#pragma once

#include "ops/dispatcher/internal_ops.h"
#include "ops/reference_guard.h"
#include "ops/sizes.h"

#include <torch/csrc/autograd/custom_function.h>

#include <optional>

/// Gradients for the internal operators: one autograd function for all kinds of arguments.
namespace sape2::ops {

/// Runs an internal operator on checked arguments so that autograd can go back through its first
/// `differentiable` outputs.
template <class Arguments>
Tensors differentiable(const Arguments& arguments, size_t differentiable);

/// Stands behind the gradients themselves: there is no second derivative, and asking for one is an
/// error rather than a silent zero.
class RefuseSecondBackward : public torch::autograd::Function<RefuseSecondBackward> {
 public:
  static Tensors forward(torch::autograd::AutogradContext*, TensorList /*sources*/,
                         const Tensors& gradients) {
    return gradients;
  }
  static Tensors backward(torch::autograd::AutogradContext*, const Tensors&) {
    TORCH_CHECK(
        false,
        "sape2: the attention operators can be differentiated once, and a second backward was "
        "asked for; leave out create_graph=True, or compute the second derivative from the "
        "operators' formulas");
  }
};

/// What `compute` gives, as gradients that cannot be differentiated again.
template <class Compute>
Tensors once_only(const Tensors& saved, const Tensors& grads, Compute compute) {
  if (!at::GradMode::is_enabled()) return compute();
  Tensors gradients;
  {
    at::AutoGradMode off(false);
    gradients = compute();
  }
  Tensors sources = saved;
  sources.insert(sources.end(), grads.begin(), grads.end());
  return RefuseSecondBackward::apply(TensorList(sources), gradients);
}

template <class Arguments>
class Differentiable : public torch::autograd::Function<Differentiable<Arguments>> {
 public:
  using Context = torch::autograd::AutogradContext;

  static Tensors forward(Context* context, TensorList given, const Arguments& arguments,
                         size_t differentiable) {
    const AlreadyChecked<Arguments> checked(arguments);
    auto outputs = Dispatched::forward(arguments);
    auto saved = given.vec();
    saved.insert(saved.end(), outputs.begin(), outputs.end());
    context->save_for_backward(saved);
    context->saved_data["settings"] =
        at::IValue::make_capsule(c10::make_intrusive<Settings>(arguments, outputs.size()));
    outputs.resize(differentiable);
    return outputs;
  }

  static Tensors backward(Context* context, const Tensors& grads) {
    const auto settings =
        c10::static_intrusive_pointer_cast<Settings>(context->saved_data["settings"].toCapsule());
    const auto saved = context->get_saved_variables();
    const size_t given = saved.size() - settings->outputs;

    Arguments arguments = settings->arguments;
    const auto tensors = arguments.tensors();
    int64_t wanted = 0;
    for (size_t index = 0, next = 0; index < tensors.size(); ++index) {
      if (!settings->is_given[index]) continue;
      *tensors[index] = saved[next++];
      if (tensors[index]->requires_grad()) wanted |= int64_t{1} << index;
    }
    const Tensors outputs(saved.begin() + given, saved.end());
    // On a GPU another thread goes back than the one that came forward.
    std::optional<ReferenceGuard> guard;
    if (settings->reference) guard.emplace();
    if (!is_traced(outputs[0])) wanted |= BackwardInputs::kMayShare;
    auto gradients = once_only(saved, grads, [&] {
      return Dispatched::backward({grads, outputs, wanted}, arguments);
    });

    // One gradient for each tensor given, then none for the other two arguments of forward.
    Tensors result;
    for (size_t index = 0, next = 0; index < tensors.size(); ++index) {
      if (!settings->is_given[index]) continue;
      result.push_back((wanted >> index) & 1 ? gradients.at(next++) : Tensor());
    }
    result.resize(given + 2);
    return result;
  }

 private:
  /// What the backward pass needs besides tensors, which autograd itself keeps.
  struct Settings : torch::CustomClassHolder {
    Settings(const Arguments& all, size_t output_count) : arguments(all), outputs(output_count) {
      for (auto* tensor : arguments.tensors()) {
        is_given.push_back(tensor->defined());
        *tensor = Tensor();
      }
    }
    Arguments arguments;
    std::vector<bool> is_given;
    size_t outputs;
    bool reference = reference_only();
  };
};

template <class Arguments>
Tensors differentiable(const Arguments& arguments, size_t differentiable) {
  const auto tensors = arguments.tensors();
  Tensors given;
  given.reserve(tensors.size());
  for (const auto* tensor : tensors)
    if (tensor->defined()) given.push_back(*tensor);
  return Differentiable<Arguments>::apply(TensorList(given), arguments, differentiable);
}

}  // namespace sape2::ops
