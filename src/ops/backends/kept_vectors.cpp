#include "ops/backends/kept_vectors.h"

#include "ops/packed_heads.h"

#include <ATen/ATen.h>

namespace sape2::ops {

int64_t bytes_to_keep(const Sape2Arguments& a) {
  if (!a.vectors.q.device().is_cuda()) return 0;
#ifdef SAPE2_FUSED_CUDA
  return bytes_cuda_keeps(a);
#else
  return 0;
#endif
}

at::Tensor empty_kept(const Sape2Arguments& a) {
  const auto& q = a.vectors.q;
  const std::array<c10::SymInt, 3> sizes{q.sym_size(0), q.sym_size(1), a.kept};
  return empty_for(q, sizes, at::kByte);
}

}  // namespace sape2::ops
