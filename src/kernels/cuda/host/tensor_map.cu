#include "kernels/cuda/host/tensor_map.h"

#include <cuda_runtime.h>

namespace sape2::kernels::cuda {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

/// Asked of the driver by name, so that nothing links against it.
Encode find_encoder() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
#if CUDART_VERSION >= 12050
  const auto code = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                                     cudaEnableDefault, &found);
#else
  const auto code =
      cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &function, cudaEnableDefault, &found);
#endif
  if (code != cudaSuccess || found != cudaDriverEntryPointSuccess) {
    cudaGetLastError();  // a refusal here is no error of the next call
    return nullptr;
  }
  return reinterpret_cast<Encode>(function);
}

CUtensorMapSwizzle swizzle_of(int row_bytes) {
  if (row_bytes == 128) return CU_TENSOR_MAP_SWIZZLE_128B;
  return row_bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B : CU_TENSOR_MAP_SWIZZLE_NONE;
}

}  // namespace

bool make_tensor_map(const TmaTensor& tensor, CUtensorMap* map) {
  static const Encode encode = find_encoder();
  if (encode == nullptr) return false;
  const int bytes = tensor.type == CU_TENSOR_MAP_DATA_TYPE_FLOAT32 ? 4 : 2;
  cuuint64_t sizes[5], strides[4];
  for (int i = 0; i < 5; ++i) sizes[i] = static_cast<cuuint64_t>(tensor.sizes[i]);
  for (int i = 0; i < 4; ++i) strides[i] = static_cast<cuuint64_t>(tensor.strides[i] * bytes);
  const cuuint32_t box[5] = {static_cast<cuuint32_t>(tensor.box[0]),
                             static_cast<cuuint32_t>(tensor.box[1]),
                             static_cast<cuuint32_t>(tensor.box[2]), 1, 1};
  const cuuint32_t steps[5] = {1, 1, 1, 1, 1};
  return encode(map, tensor.type, 5, const_cast<void*>(tensor.data), sizes, strides, box, steps,
                CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle_of(tensor.box[0] * bytes),
                CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace sape2::kernels::cuda
