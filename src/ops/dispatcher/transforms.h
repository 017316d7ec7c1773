#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

namespace sape2::ops {

/// A kernel for every operator that vmap cannot take apart: says so in one sentence.
void refuse_vmap(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace sape2::ops
