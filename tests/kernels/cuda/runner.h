#pragma once

#include "reference.h"

namespace sape2::kernels::test {

/// Runs the CUDA kernels on a problem whose numbers are first rounded to `type`, forward and
/// backward. `packed`: q, k and v are views of one (images, tokens, 3, heads, head size) tensor.
/// `keeps_vectors`: from forward to backward, else they are made again.
Solution run_on_gpu(const Problem& problem, DType type, bool packed, bool keeps_vectors = true);
/// With vectors and softmax of a forward call whose rows lie apart and were not aligned, and a
/// backward call whose rows are, as copies of saved tensors may be; else the other way round.
Solution run_moved_on_gpu(const Problem& problem, DType type, bool moves_together);

/// A problem whose q, k, v, dout and vectors `type` can hold, tables and gates float32.
Problem rounded_problem(Problem problem, DType type);

}  // namespace sape2::kernels::test
