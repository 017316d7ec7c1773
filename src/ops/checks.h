#pragma once

#include "ops/arguments.h"

/// Argument checks: each throws one sentence that names the operator, the argument, its value and
/// what was expected.
namespace sape2::ops {

void check(const char* op, const VectorArguments& a);
void check(const char* op, const BiasedArguments& a);
void check(const char* op, const Sape2Arguments& a);
void check(const char* op, const CopeArguments& a);

/// The `form` argument as an enum; only "distance" and "direct" are names a user may give.
Form parse_form(const char* op, const std::string& form);

/// Checks of the rotary operators' argument `x`.
void check_rotary(const char* op, const at::Tensor& x, const Grid& grid, int64_t divisor);
void check_frequencies(const char* op, const char* name, const at::Tensor& f, const at::Tensor& x);

/// The type sums are kept in: float32 for the 16-bit types, otherwise the type itself.
at::ScalarType compute_type(const at::Tensor& tensor);

}  // namespace sape2::ops
