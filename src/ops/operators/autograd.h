#pragma once

#include "ops/dispatcher/internal_ops.h"
#include "ops/operators/gate_divisor.h"
#include "ops/reference_guard.h"
#include "ops/sizes.h"

#include <ATen/FuncTorchTLS.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>

/// Gradients for the internal operators: one node of autograd's graph for all kinds of arguments.
namespace sape2::ops {

/// Runs an internal operator on checked arguments so that autograd can go back through its first
/// `differentiable` outputs, and returns those.
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
        "sape2: this operator can be differentiated once, and a second backward was asked for; "
        "leave out create_graph=True, or compute the second derivative from the operator's "
        "formula");
  }
};

/// What `compute` gives, as gradients that cannot be differentiated again. Any of the tensors may
/// be undefined.
template <class Compute>
Tensors once_only(const Tensors& saved, const Tensors& grads, Compute compute) {
  if (!at::GradMode::is_enabled()) return compute();
  Tensors gradients, sources, refusing;
  {
    at::AutoGradMode off(false);
    gradients = compute();
  }
  const auto is_defined = [](const Tensor& tensor) { return tensor.defined(); };
  std::ranges::copy_if(saved, std::back_inserter(sources), is_defined);
  std::ranges::copy_if(grads, std::back_inserter(sources), is_defined);
  std::ranges::copy_if(gradients, std::back_inserter(refusing), is_defined);
  refusing = RefuseSecondBackward::apply(TensorList(sources), refusing);
  std::size_t next = 0;
  for (Tensor& gradient : gradients)
    if (gradient.defined()) gradient = refusing[next++];
  return gradients;
}

/// A node in the kind of pointer that this LibTorch counts nodes by.
template <class Node>
auto pointer_to(Node& node) {
  if constexpr (requires { node.getptr(); }) {
    return node.getptr();
  } else {
    return node.shared_from_this();
  }
}

/// The backward pass of one call. PyTorch's own torch::autograd::Function would do, but it
/// describes every input twice and asks for its own name, which a small call feels: it waits for
/// the host.
template <class Arguments>
class BackwardNode final : public torch::autograd::Node {
 public:
  /// `edges`: where the gradients of the given tensors go.
  BackwardNode(const Arguments& arguments, torch::autograd::edge_list&& edges)
      : Node(std::move(edges)), arguments_(arguments) {
    const auto tensors = arguments_.tensors();
    for (size_t index = 0; index < tensors.size(); ++index) {
      if (tensors[index]->defined()) given_ |= int64_t{1} << index;
      *tensors[index] = Tensor();
    }
  }

  /// Keeps what the backward pass reads: the given tensors, all outputs, of which the first are
  /// this node's, and the divided gates where there are any.
  void save(const Tensors& given, const Tensors& outputs, size_t differentiable,
            const Tensor& divided) {
    saved_.reserve(given.size() + outputs.size() + (divided.defined() ? 1 : 0));
    for (const auto& tensor : given) saved_.emplace_back(tensor, /*is_output=*/false);
    for (size_t index = 0; index < outputs.size(); ++index)
      saved_.emplace_back(outputs[index], index < differentiable);
    if (divided.defined()) saved_.emplace_back(divided, /*is_output=*/false);
    outputs_ = outputs.size();
  }

  Tensors apply(Tensors&& grads) override {
    const std::lock_guard lock(mutex_);
    if (std::none_of(grads.begin(), grads.end(), [](const auto& grad) { return grad.defined(); }))
      return Tensors(num_outputs());
    Tensors saved;
    saved.reserve(saved_.size());
    for (const auto& variable : saved_) saved.push_back(variable.unpack(pointer_to(*this)));

    Arguments arguments = arguments_;
    const auto tensors = arguments.tensors();
    int64_t wanted = 0;
    size_t given = 0;
    for (size_t index = 0; index < tensors.size(); ++index) {
      if (!is_given(index)) continue;
      if (task_should_compute_output(given)) wanted |= int64_t{1} << index;
      *tensors[index] = saved[given++];
    }
    const TensorList outputs = TensorList(saved).slice(given, outputs_);
    for (size_t index = 0; index < grads.size(); ++index)
      if (!grads[index].defined()) grads[index] = at::zeros_like(outputs[index]);
    if (saved.size() > given + outputs_) put_divided_gates(arguments, saved.back());
    // On a GPU another thread goes back than the one that came forward.
    std::optional<ReferenceGuard> guard;
    if (reference_) guard.emplace();
    if (!is_traced(outputs[0])) wanted |= BackwardInputs::kMayShare;
    auto gradients = once_only(saved, grads, [&] {
      auto found = Dispatched::backward({grads, outputs, wanted}, arguments);
      divide_gradient(arguments, wanted, found);
      return found;
    });

    Tensors result(given);
    for (size_t index = 0, next = 0, edge = 0; index < tensors.size(); ++index) {
      if (!is_given(index)) continue;
      if ((wanted >> index) & 1) result[edge] = std::move(gradients.at(next++));
      ++edge;
    }
    return result;
  }

  void release_variables() override {
    const std::lock_guard lock(mutex_);
    for (auto& variable : saved_) variable.reset_data();
  }

  std::string name() const override { return std::string("sape2::") + Arguments::kBackwardName; }

 private:
  bool is_given(size_t index) const { return (given_ >> index) & 1; }

  Arguments arguments_;  // without the tensors
  int64_t given_ = 0;    // bit i: the i-th of them was given
  std::vector<torch::autograd::SavedVariable> saved_;
  size_t outputs_ = 0;
  bool reference_ = reference_only();
};

template <class Node, class... Arguments>
auto make_node(Arguments&&... arguments) {
  using Pointer = decltype(pointer_to(std::declval<Node&>()));
  if constexpr (std::is_same_v<Pointer, std::shared_ptr<torch::autograd::Node>>) {
    // deleteNode is torch::autograd's, where it counts nodes so.
    return std::shared_ptr<Node>(new Node(std::forward<Arguments>(arguments)...),
                                 [](Node* node) { deleteNode(node); });
  } else {
    return c10::make_intrusive<Node>(std::forward<Arguments>(arguments)...);
  }
}

/// Derivatives of other kinds than backward, which nobody has written.
inline void refuse_other_derivatives(const Tensors& given) {
#if TORCH_VERSION_MAJOR >= 2
  const auto& transformation = at::functorch::functorchTLSAccessor();
  try {
    if (transformation) transformation->checkSupportsCppAutogradFunction();
  } catch (const c10::Error&) {  // whose sentence is about PyTorch's own insides
    TORCH_CHECK(false,
                "sape2: the attention operators' gradients are written in C++, which torch.func's "
                "grad, vjp and jvp cannot pass; use backward() or torch.autograd.grad");
  }
#endif
  for (const auto& tensor : given)
    TORCH_CHECK(!tensor._fw_grad(/*level=*/0).defined(),
                "sape2: the attention operators have no forward-mode derivative, and a tensor "
                "with a tangent was given; use backward(), or give tensors without tangents");
}

/// Whether a gradient of any of the arguments may be asked for.
template <class Arguments>
bool goes_back(const Arguments& arguments) {
  if (!at::GradMode::is_enabled()) return false;
  const auto tensors = arguments.tensors();
  return std::any_of(tensors.begin(), tensors.end(),
                     [](const auto* t) { return t->defined() && t->requires_grad(); });
}

template <class Arguments>
Tensors differentiable(const Arguments& arguments, size_t differentiable) {
  Tensors given;
  const auto tensors = arguments.tensors();
  given.reserve(tensors.size());
  for (const auto* tensor : tensors)
    if (tensor->defined()) given.push_back(*tensor);
  refuse_other_derivatives(given);

  const auto node = goes_back(arguments)
                        ? make_node<BackwardNode<Arguments>>(
                              arguments, torch::autograd::collect_next_edges(given))
                        : nullptr;
  Tensors outputs;
  Tensor divided;
  {
    const at::AutoGradMode off(false);
    // Outputs that are views of other new tensors must not be known as such.
    const at::AutoDispatchBelowADInplaceOrView below;
    const auto run = [&](const Arguments& applied) {
      const AlreadyChecked<Arguments> checked(applied);
      outputs = Dispatched::forward(applied);
    };
    if (divides_gates(arguments)) {
      Arguments applied = arguments;
      divided = put_divided_gates(applied, divided_gates(arguments));
      run(applied);
    } else {
      run(arguments);
    }
  }
  Tensors results = TensorList(outputs).slice(0, differentiable).vec();
  if (node) {
    for (auto& result : results) torch::autograd::set_history(result, node);
    node->save(given, outputs, differentiable, divided);
  }
  return results;
}

}  // namespace sape2::ops
