#include "kernels/cuda/common/element.cuh"
#include "kernels/cuda/host/call.h"
#include "kernels/cuda/training/columns.h"
#include "kernels/cuda/training/normal.cuh"
#include "kernels/cuda/training/vectors4.cuh"
#include "kernels/cuda/training/walk.cuh"

namespace sape2::kernels::cuda {
namespace {

template <class T>
__device__ Four with_bias(const T* x, const T* bias, std::int64_t at, std::int64_t column) {
  Four v = load4(x + at);
  if (bias == nullptr) return v;
  const Four b = load4(bias + column);
  for (int i = 0; i < 4; ++i) v.x[i] += b.x[i];
  return v;
}

template <class T>
__global__ void forward_kernel(const T* x, const T* bias, T* out, std::int64_t quads,
                               std::int64_t quads_per_row) {
  const std::int64_t quad = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (quad >= quads) return;
  Four v = with_bias(x, bias, quad * 4, quad % quads_per_row * 4);
  for (float& value : v.x) value *= normal_at<T>(value).below;
  store4(out + quad * 4, v);
}

template <class T>
struct Backward {
  const T* x;
  const T* bias;
  const T* dout;
  T* dx;

  __device__ Four operator()(std::int64_t at, std::int64_t column) const {
    const Four v = with_bias(x, bias, at, column);
    Four d = load4(dout + at);
    for (int i = 0; i < 4; ++i) {
      const Normal normal = normal_at<T>(v.x[i]);
      d.x[i] *= normal.below + v.x[i] * normal.density;
    }
    store4(dx + at, d);
    return d;
  }
};

}  // namespace

void bias_gelu_forward(DType dtype, std::int64_t rows, std::int64_t width, const void* x,
                       const void* bias, void* out, void* stream) {
  check_matrix("bias_gelu", rows, width);
  constexpr int kThreads = 256;
  const std::int64_t quads = rows * width / 4;
  dispatch_type(dtype, [&](auto type) {
    using T = decltype(type);
    launch(forward_kernel<T>, (quads + kThreads - 1) / kThreads, 1, kThreads, 0,
           static_cast<cudaStream_t>(stream), static_cast<const T*>(x), static_cast<const T*>(bias),
           static_cast<T*>(out), quads, width / 4);
  });
}

void bias_gelu_backward(DType dtype, std::int64_t rows, std::int64_t width, const void* x,
                        const void* bias, const void* dout, void* dx, void* dbias, void* workspace,
                        void* stream) {
  check_matrix("bias_gelu", rows, width);
  const auto on = static_cast<cudaStream_t>(stream);
  auto* const partials = static_cast<float*>(workspace);
  int slices = 0;
  dispatch_type(dtype, [&](auto type) {
    using T = decltype(type);
    slices = walk_columns(Backward<T>{static_cast<const T*>(x), static_cast<const T*>(bias),
                                      static_cast<const T*>(dout), static_cast<T*>(dx)},
                          rows, width, partials, on);
  });
  if (dbias != nullptr) add_partial_columns(dtype, partials, slices, 1, width, {{dbias}}, on);
}

}  // namespace sape2::kernels::cuda
