#pragma once

#include "ops/arguments.h"
#include "ops/checks/checks.h"

#include <utility>

/// The checks of the internal operators besides those they share with the public ones.
namespace sape2::ops {

bool same(const VectorArguments& a, const VectorArguments& b);
bool same(const BiasedArguments& a, const BiasedArguments& b);
bool same(const Sape2Arguments& a, const Sape2Arguments& b);
bool same(const PackedArguments& a, const PackedArguments& b);
bool same(const CopeArguments& a, const CopeArguments& b);
bool same(const BiasArguments& a, const BiasArguments& b);

/// While one of these lives, the first internal operator this thread runs on these very arguments
/// takes them as checked: a public operator has just done it, and small calls would feel a second
/// time. Other arguments, say from a Python mode that stands between the two, are checked.
template <class Arguments>
class AlreadyChecked {
 public:
  explicit AlreadyChecked(const Arguments& a) : before_(std::exchange(checked_, &a)) {}
  ~AlreadyChecked() { checked_ = before_; }
  AlreadyChecked(const AlreadyChecked&) = delete;
  AlreadyChecked& operator=(const AlreadyChecked&) = delete;

  static bool holds(const Arguments& a) {
    const Arguments* checked = std::exchange(checked_, nullptr);
    return checked != nullptr && same(*checked, a);
  }

 private:
  static inline thread_local const Arguments* checked_ = nullptr;
  const Arguments* before_;
};

/// The forward arguments once more, since hooks on saved tensors may hand back others, and what
/// comes with them: gradients and outputs of the right number, shape, type and device, and
/// gradients wanted only of tensors that are there.
void check_backward(const char* op, const BackwardInputs& in, const VectorArguments& a);
void check_backward(const char* op, const BackwardInputs& in, const BiasedArguments& a);
void check_backward(const char* op, const BackwardInputs& in, const Sape2Arguments& a);
void check_backward(const char* op, const BackwardInputs& in, const PackedArguments& a);
void check_backward(const char* op, const BackwardInputs& in, const CopeArguments& a);
void check_backward(const char* op, const BackwardInputs& in, const BiasArguments& a);

}  // namespace sape2::ops
