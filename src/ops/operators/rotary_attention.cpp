#include "ops/operators/autograd.h"
#include "ops/reference_guard.h"
#include "ops/training/kernels.h"

#include <ATen/ATen.h>

#include <cmath>

namespace sape2::ops {
namespace {

using Angles = Rotation::Angles;

Tensor turned_by_formula(const Tensor& x, const Grid& grid, const Rotation& rotation) {
  switch (rotation.angles) {
    case Angles::raster:
      return rope(x, grid.prefix);
    case Angles::axial:
      return rope2d(x, grid);
    default:
      return rope2d_mixed(x, rotation.fx, rotation.fy, grid);
  }
}

/// Arguments that do not fit each other are left to the formula, which says so, and tensors without
/// memory to it as well: torch.compile sees its operators.
bool is_fused(const Tensor& q, const Tensor& k, const Tensor& v, const Grid& grid,
              const Rotation& rotation) {
  if (reference_only() || !q.defined() || q.dim() != 4 || is_traced(q) || !fused::turns(q))
    return false;
  for (const Tensor& other : {k, v}) {
    if (!other.defined() || other.sizes() != q.sizes() || other.device() != q.device() ||
        other.scalar_type() != q.scalar_type())
      return false;
  }
  if (grid.rows < 1 || grid.cols < 1 || grid.prefix < 0 || grid.tokens() != q.size(2)) return false;
  if (rotation.angles != Angles::mixed) return true;
  for (const Tensor& f : {rotation.fx, rotation.fy}) {
    if (!f.defined() || f.dim() != 2 || f.size(0) != q.size(1) || f.size(1) != q.size(3) / 2 ||
        f.device() != q.device() || f.scalar_type() != at::kFloat)
      return false;
  }
  return true;
}

/// Turns q and k and attends. The gradients of what was turned are this function's own, so they are
/// turned back where they lie.
class RotaryAttention : public torch::autograd::Function<RotaryAttention> {
 public:
  using Context = torch::autograd::AutogradContext;

  /// `given`: q, k, v and, where mixed, fx and fy.
  static Tensor forward(Context* context, TensorList given, const Grid& grid, Angles angles) {
    const auto [q, k, v] =
        fused::turned(given[0], given[1], given[2], grid, rotation_of(given, angles));
    const auto arguments = plain(q, k, v);
    const AlreadyChecked<BiasedArguments> checked(arguments);
    const auto outputs = Dispatched::forward(arguments);
    Tensors saved{q, k, v, outputs[0], outputs[1]};
    bool learnt = false;
    for (const Tensor& f : given.slice(3)) {
      saved.push_back(f);
      learnt = learnt || f.requires_grad();
    }
    context->save_for_backward(saved);
    context->saved_data["rows"] = grid.rows;
    context->saved_data["cols"] = grid.cols;
    context->saved_data["prefix"] = grid.prefix;
    context->saved_data["angles"] = static_cast<int64_t>(angles);
    context->saved_data["learnt"] = learnt;
    return outputs[0];
  }

  static Tensors backward(Context* context, const Tensors& grads) {
    const auto number = [&](const char* name) { return context->saved_data[name].toInt(); };
    const Grid grid{number("rows"), number("cols"), number("prefix")};
    const auto angles = static_cast<Angles>(number("angles"));
    const auto saved = context->get_saved_variables();
    const Tensors outputs{saved[3], saved[4]};
    const bool mixed = angles == Angles::mixed;
    auto gradients = once_only(saved, grads, [&] {
      auto d = Dispatched::backward({grads, outputs, /*wanted=*/0b111 | BackwardInputs::kMayShare},
                                    plain(saved[0], saved[1], saved[2]));
      const Rotation rotation =
          mixed ? Rotation{angles, saved[5], saved[6]} : Rotation{angles, {}, {}};
      const auto [dfx, dfy] = fused::turn_back(d[0], d[1], saved[0], saved[1], grid, rotation,
                                               context->saved_data["learnt"].toBool());
      if (dfx.defined()) d.insert(d.end(), {dfx, dfy});
      return d;
    });
    gradients.resize((mixed ? 5 : 3) + 2);
    return gradients;
  }

 private:
  static Rotation rotation_of(TensorList given, Angles angles) {
    if (angles != Angles::mixed) return {angles, {}, {}};
    return {angles, given[3], given[4]};
  }
  static BiasedArguments plain(const Tensor& q, const Tensor& k, const Tensor& v) {
    return {.q = q, .k = k, .v = v, .scale = 1 / std::sqrt(static_cast<double>(q.size(3)))};
  }
};

}  // namespace

Tensor rotary_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Grid& grid,
                        const Rotation& rotation) {
  if (!is_fused(q, k, v, grid, rotation))
    return attention(turned_by_formula(q, grid, rotation), turned_by_formula(k, grid, rotation), v);
  Tensors given{q, k, v};
  if (rotation.angles == Angles::mixed) given.insert(given.end(), {rotation.fx, rotation.fy});
  return RotaryAttention::apply(TensorList(given), grid, rotation.angles);
}

}  // namespace sape2::ops
