#pragma once

#include "ops/dispatcher/internal_ops.h"

#include <c10/core/impl/LocalDispatchKeySet.h>

namespace sape2::ops {

/// While one of these lives, autograd records on this thread, also below a TorchDispatchMode (such
/// as PyTorch's counter of operations), which calls kernels with autograd left out.
class AutogradGuard {
 private:
  static c10::impl::LocalDispatchKeySet with_autograd() {
    auto keys = c10::impl::tls_local_dispatch_key_set();
    keys.excluded_ = keys.excluded_ - c10::autograd_dispatch_keyset;
    return keys;
  }

  c10::impl::ForceDispatchKeyGuard keys_{with_autograd()};
  at::AutoGradMode on_{true};
};

/// The plain formulas as a back end, for every device and floating-point type; the backward pass
/// recomputes the forward one under autograd.
struct ReferenceBackend {
  static Tensors forward(const BiasedArguments& a);
  static Tensors forward(const Sape2Arguments& a);
  static Tensors forward(const CopeArguments& a);
  static Tensors forward(const VectorArguments& a);
  static Tensors forward(const BiasArguments& a);

  template <class Arguments>
  static Tensors backward(const BackwardInputs& in, const Arguments& given) {
    const AutogradGuard on;
    Arguments a = given;
    const auto tensors = a.tensors();
    Tensors leaves;
    for (size_t index = 0; index < tensors.size(); ++index) {
      if (!in.wants(index)) continue;
      *tensors[index] = tensors[index]->detach().requires_grad_();
      leaves.push_back(*tensors[index]);
    }
    return gradients(in, leaves, [&] { return forward(a); });
  }

 private:
  template <class Forward>
  static Tensors gradients(const BackwardInputs& in, const Tensors& leaves, Forward run) {
    if (leaves.empty()) return {};
    auto outputs = run();
    outputs.resize(in.grads.size());
    return autograd_of(outputs, leaves, in.grads);
  }
  static Tensors autograd_of(const Tensors& outputs, const Tensors& leaves, TensorList grads);
};

}  // namespace sape2::ops
