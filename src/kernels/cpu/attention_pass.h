#pragma once

#include "cpu/task.h"

namespace sape2::kernels {

/// Run chunks [begin, end) of a task on the best SIMD target.
void forward_chunks(const AttentionTask& task, std::int64_t begin, std::int64_t end);
void backward_chunks(const AttentionTask& task, std::int64_t begin, std::int64_t end);

}  // namespace sape2::kernels
