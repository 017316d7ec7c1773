#include "kernels/cuda/axis_vectors/center.cuh"
#include "kernels/cuda/axis_vectors/center.h"
#include "kernels/cuda/axis_vectors/exchange.h"
#include "kernels/cuda/axis_vectors/params.h"
#include "kernels/cuda/common/element.cuh"
#include "kernels/cuda/host/launch.h"
#include "kernels/cuda/host/params.h"

namespace sape2::kernels::cuda::axis_vectors {
namespace {

constexpr int kPerBlock = 256;

struct Exchange {
  Geometry geometry;
  int sets;
  bool add_sets, fp32;
  const void* from[2];
  void* to[2];
  int widths[2];
};

/// −∞, a mask, becomes the lowest number: attention multiplies some vectors by 0.
template <class T>
__device__ float at_least_lowest(float value) {
  constexpr float kLowest = std::is_same_v<T, Fp16> ? -65504.0F : -3.3895314e38F;
  return !kIsFp32<T> && value < kLowest ? kLowest : value;
}

/// One thread a number of the kernels' layout, whose padding gets zeros.
template <class T>
__global__ void import_kernel(const __grid_constant__ Exchange p) {
  const auto& g = p.geometry;
  const int axis = blockIdx.y, entries = axis ? g.rows : g.cols, width = p.widths[axis];
  const int patches = g.tokens - g.prefix;
  const std::int64_t own_sets = p.add_sets ? 1 : p.sets;
  const std::int64_t i = std::int64_t(blockIdx.x) * kPerBlock + threadIdx.x;
  if (i >= own_sets * g.batch_heads * g.padded_tokens * width) return;
  const int entry = i % width, token = i / width % g.padded_tokens;
  const std::int64_t head = i / width / g.padded_tokens;
  float value = 0.0F;
  if (token >= g.prefix && token < g.tokens && entry < entries) {
    const T* from = static_cast<const T*>(p.from[axis]);
    for (int set = 0; set < (p.add_sets ? p.sets : 1); ++set)
      value += widen(
          from[((set * g.batch_heads + head) * patches + token - g.prefix) * entries + entry]);
  }
  if (p.fp32) {
    static_cast<float*>(p.to[axis])[i] = value;
  } else {
    static_cast<T*>(p.to[axis])[i] = narrow<T>(at_least_lowest<T>(value));
  }
}

/// One thread a number of the caller's layout.
template <class T>
__global__ void export_kernel(const __grid_constant__ Exchange p) {
  const auto& g = p.geometry;
  const int axis = blockIdx.y, entries = axis ? g.rows : g.cols;
  const int patches = g.tokens - g.prefix;
  const std::int64_t i = std::int64_t(blockIdx.x) * kPerBlock + threadIdx.x;
  if (i >= p.sets * g.batch_heads * patches * entries || p.to[axis] == nullptr) return;
  const int entry = i % entries, patch = i / entries % patches;
  const std::int64_t head = i / entries / patches;
  const std::int64_t own = p.add_sets ? head % g.batch_heads : head;
  const std::int64_t place = (own * g.padded_tokens + g.prefix + patch) * p.widths[axis] + entry;
  static_cast<T*>(p.to[axis])[i] = p.fp32
                                       ? narrow<T>(static_cast<const float*>(p.from[axis])[place])
                                       : static_cast<const T*>(p.from[axis])[place];
}

std::int64_t blocks_for(const Exchange& p) {
  const std::int64_t width = p.widths[0] > p.widths[1] ? p.widths[0] : p.widths[1];
  const auto& g = p.geometry;
  return (p.sets * g.batch_heads * width * g.padded_tokens + kPerBlock - 1) / kPerBlock;
}

}  // namespace

template <class T>
void import_vectors(const Geometry& geometry, int sets, const std::array<const void*, 2>& given,
                    const VectorPlaces<void*>& own, cudaStream_t stream) {
  const Exchange p{.geometry = geometry,
                   .sets = sets,
                   .add_sets = own.add_sets,
                   .fp32 = own.fp32,
                   .from = {given[0], given[1]},
                   .to = {own.axes[0], own.axes[1]},
                   .widths = {own.widths[0], own.widths[1]}};
  launch(import_kernel<T>, blocks_for(p), 2, kPerBlock, 0, stream, p);
}
template <class T>
void export_gradients(const Geometry& geometry, int sets, const VectorPlaces<const void*>& own,
                      const std::array<void*, 2>& gradients, cudaStream_t stream) {
  const Exchange p{.geometry = geometry,
                   .sets = sets,
                   .add_sets = own.add_sets,
                   .fp32 = own.fp32,
                   .from = {own.axes[0], own.axes[1]},
                   .to = {gradients[0], gradients[1]},
                   .widths = {own.widths[0], own.widths[1]}};
  launch(export_kernel<T>, blocks_for(p), 2, kPerBlock, 0, stream, p);
}

#define SAPE2_INSTANTIATE(T)                                                                \
  template void import_vectors<T>(const Geometry&, int, const std::array<const void*, 2>&,  \
                                  const VectorPlaces<void*>&, cudaStream_t);                \
  template void export_gradients<T>(const Geometry&, int, const VectorPlaces<const void*>&, \
                                    const std::array<void*, 2>&, cudaStream_t);             \
  template void center<T>(const CenterParams&, cudaStream_t);
SAPE2_INSTANTIATE(Bf16)
SAPE2_INSTANTIATE(Fp16)
SAPE2_INSTANTIATE(float)
#undef SAPE2_INSTANTIATE

}  // namespace sape2::kernels::cuda::axis_vectors
