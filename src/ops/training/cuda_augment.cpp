#include "sape2/ops/augment.h"

#include "ops/backends/kernel_views.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>

#include <cstring>

namespace sape2::ops {
namespace {

template <class T>
at::Tensor uploaded(const std::vector<T>& values, const at::Device& device) {
  const auto bytes = static_cast<int64_t>(values.size() * sizeof(T));
  const at::Tensor staged =
      at::empty({bytes}, at::TensorOptions().dtype(at::kByte).pinned_memory(true));
  if (bytes > 0) std::memcpy(staged.data_ptr(), values.data(), static_cast<std::size_t>(bytes));
  return staged.to(device, /*non_blocking=*/true);
}

}  // namespace

bool can_augment(const at::Tensor& data) {
  return data.is_cuda() && data.dim() == 4 && data.scalar_type() == at::kByte &&
         data.is_contiguous() &&
         kernels::cuda::augment_fits(data.size(1), data.size(2), data.size(3));
}

AugmentedBatch augment(const at::Tensor& data, const at::Tensor& labels, const AugmentPlan& plan,
                       const AugmentSettings& settings) {
  const c10::cuda::CUDAGuard guard(data.device());
  const auto images = static_cast<int64_t>(plan.images.size());
  const at::Tensor images_plan = uploaded(plan.images, data.device());
  const at::Tensor calls = uploaded(plan.calls, data.device());
  const auto wide = data.options().dtype(at::kFloat);
  AugmentedBatch batch{at::empty({images, data.size(1), data.size(2), data.size(3)}, wide),
                       at::empty({images, settings.classes}, wide)};
  const at::Tensor scratch = plan.mixes ? at::empty_like(batch.images) : at::Tensor();
  kernels::cuda::AugmentPass pass{
      .images = images,
      .classes = settings.classes,
      .channels = static_cast<int32_t>(data.size(1)),
      .height = static_cast<int32_t>(data.size(2)),
      .width = static_cast<int32_t>(data.size(3)),
      .padding = static_cast<int32_t>(settings.padding),
      .operations = images == 0 ? 0 : static_cast<int32_t>(plan.calls.size() / plan.images.size()),
      .mixes = plan.mixes,
      .target = settings.target,
      .other_target = settings.other_target,
      .data = data.data_ptr<uint8_t>(),
      .labels = labels.data_ptr<int64_t>(),
      .plan = static_cast<const kernels::cuda::PlannedImage*>(images_plan.data_ptr()),
      .calls = static_cast<const kernels::cuda::PlannedOperation*>(calls.data_ptr()),
      .scratch = floats(scratch),
      .out = floats(batch.images),
      .targets = floats(batch.targets)};
  std::copy(settings.mean.begin(), settings.mean.end(), pass.mean);
  std::copy(settings.factor.begin(), settings.factor.end(), pass.factor);
  kernels::cuda::augment_pass(pass, at::cuda::getCurrentCUDAStream().stream());
  return batch;
}

}  // namespace sape2::ops
