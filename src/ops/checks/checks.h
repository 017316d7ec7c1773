#pragma once

#include "ops/arguments.h"

#include <c10/core/SymInt.h>

#include <initializer_list>

/// Argument checks: each throws one sentence that names the operator, the argument, its value and
/// what was expected.
namespace sape2::ops {

void check(const char* op, const VectorArguments& a);
void check(const char* op, const BiasedArguments& a);
void check(const char* op, const Sape2Arguments& a);
void check(const char* op, const PackedArguments& a);
void check(const char* op, const CopeArguments& a);
void check(const char* op, const BiasArguments& a);

/// A projection's output, whose thirds q, k and v are checked by themselves.
void check_packed(const char* op, const at::Tensor& qkv, int64_t heads);

/// The `form` argument as an enum; "none" is no name that a user may give.
Form parse_form(const char* op, const std::string& form);

/// Of the internal attention operator, which knows "none" as well.
Form parse_any_form(const char* op, const std::string& form);

/// Checks of the rotary operators' argument `x`.
void check_rotary(const char* op, const at::Tensor& x, const Grid& grid, int64_t divisor);
void check_frequencies(const char* op, const char* name, const at::Tensor& f, const at::Tensor& x);

/// A tensor besides the arguments: given, on the device of `like`, of this type and shape.
void check_tensor(const char* op, const char* name, const at::Tensor& tensor,
                  const at::Tensor& like, at::ScalarType type,
                  std::initializer_list<c10::SymInt> shape);

/// The type sums are kept in: float32 for the 16-bit types, otherwise the type itself.
at::ScalarType compute_type(const at::Tensor& tensor);

}  // namespace sape2::ops
