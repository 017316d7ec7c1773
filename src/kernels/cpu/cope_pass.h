#pragma once

#include "sape2/kernels/cope.h"

#include "cpu/task.h"

namespace sape2::kernels {

/// Run chunks [begin, end) of attention with contextual positions. The task's shape is one row of
/// all tokens and it has no bias of its own.
void cope_forward_chunks(const AttentionTask& task, const CopeEncoding& encoding,
                         std::int64_t begin, std::int64_t end);
void cope_backward_chunks(const AttentionTask& task, const CopeEncoding& encoding,
                          std::int64_t begin, std::int64_t end);

}  // namespace sape2::kernels
