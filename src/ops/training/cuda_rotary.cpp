#include "sape2/kernels/cuda_training.h"

#include "ops/backends/kernel_views.h"
#include "ops/packed_heads.h"
#include "ops/training/kernels.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>

namespace sape2::ops::fused {
namespace {

namespace cuda = kernels::cuda;
using at::Tensor;

constexpr int64_t kLargestHead = 128;  // of the attention that follows
constexpr int64_t kGroup = 4;          // elements that are loaded at once

void* stream() {
  return at::cuda::getCurrentCUDAStream().stream();
}

/// The tensor, or a copy, whose rows begin where groups of elements do.
Tensor with_aligned_rows(const Tensor& x) {
  const auto bytes = static_cast<std::uintptr_t>(kGroup * x.element_size());
  const bool aligned = x.stride(3) == 1 && x.stride(0) % kGroup == 0 && x.stride(1) % kGroup == 0 &&
                       x.stride(2) % kGroup == 0 &&
                       reinterpret_cast<std::uintptr_t>(x.data_ptr()) % bytes == 0;
  return aligned ? x : x.clone(at::MemoryFormat::Contiguous);
}

cuda::Rotation kernel_rotation(const Rotation& rotation) {
  using Angles = cuda::Rotation::Angles;
  switch (rotation.angles) {
    case Rotation::Angles::raster:
      return {Angles::raster, nullptr, nullptr};
    case Rotation::Angles::axial:
      return {Angles::axial, nullptr, nullptr};
    default:
      return {Angles::mixed, floats(rotation.fx), floats(rotation.fy)};
  }
}

Rotation contiguous(const Rotation& rotation) {
  if (rotation.angles != Rotation::Angles::mixed) return rotation;
  return {rotation.angles, rotation.fx.contiguous(), rotation.fy.contiguous()};
}

}  // namespace

bool turns(const Tensor& q) {
  const auto type = q.scalar_type();
  return q.is_cuda() && q.numel() > 0 && q.size(3) % kGroup == 0 && q.size(3) <= kLargestHead &&
         (type == at::kFloat || type == at::kBFloat16 || type == at::kHalf);
}

std::array<Tensor, 3> turned(const Tensor& given_q, const Tensor& given_k, const Tensor& given_v,
                             const Grid& grid, const Rotation& given) {
  const c10::cuda::CUDAGuard guard(given_q.device());
  const Tensor q = with_aligned_rows(given_q), k = with_aligned_rows(given_k);
  const Tensor v = with_aligned_rows(given_v);
  const Rotation rotation = contiguous(given);
  const auto to =
      thirds(at::empty({q.size(0), q.size(2), 3 * q.size(1) * q.size(3)}, q.options()), q.size(1));
  cuda::rotary_forward(kernel_shape(q, grid), kernel_type(q), kernel_rotation(rotation),
                       {const_view(q), const_view(k), const_view(v)},
                       {view(to[0]), view(to[1]), view(to[2])}, stream());
  return to;
}

std::pair<Tensor, Tensor> turn_back(const Tensor& dq, const Tensor& dk, const Tensor& q,
                                    const Tensor& k, const Grid& grid, const Rotation& given,
                                    bool wanted) {
  const c10::cuda::CUDAGuard guard(q.device());
  const Rotation rotation = contiguous(given);
  const auto shape = kernel_shape(q, grid);
  Tensor dfx, dfy, workspace;
  if (wanted) {
    dfx = at::empty_like(rotation.fx);
    dfy = at::empty_like(rotation.fy);
    workspace = at::empty({static_cast<int64_t>(cuda::rotary_workspace(shape))},
                          q.options().dtype(at::kByte));
  }
  cuda::rotary_backward(
      shape, kernel_type(q), kernel_rotation(rotation),
      {view(dq), view(dk), const_view(q), const_view(k), floats(dfx), floats(dfy)},
      wanted ? workspace.data_ptr() : nullptr, stream());
  return {dfx, dfy};
}

}  // namespace sape2::ops::fused
