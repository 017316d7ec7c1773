#include "kernels/cuda/exchange.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/near_vectors.cuh"

namespace sape2::kernels::cuda {
namespace {

constexpr int kPerBlock = 256;

template <class T>
__global__ void import_kernel(const __grid_constant__ ExchangeParams p) {
  const auto& g = p.geometry;
  const int axis = blockIdx.y, entries = axis ? g.rows : g.cols;
  const int patches = g.tokens - g.prefix;
  const std::int64_t own_sets = p.add_sets ? 1 : p.sets;
  const std::int64_t count = own_sets * g.batch_heads * entries * g.padded_tokens;
  const std::int64_t i = std::int64_t(blockIdx.x) * kPerBlock + threadIdx.x;
  if (i >= count) return;
  const int token = i % g.padded_tokens, entry = i / g.padded_tokens % entries;
  const std::int64_t head = i / g.padded_tokens / entries;
  float value = 0.0F;
  if (token >= g.prefix && token < g.tokens) {
    const T* from = static_cast<const T*>(p.given[axis]);
    for (int set = 0; set < (p.add_sets ? p.sets : 1); ++set)
      value += widen(
          from[((set * g.batch_heads + head) * patches + token - g.prefix) * entries + entry]);
  }
  p.own[axis][i] = value;
}

template <class T>
__global__ void export_kernel(const __grid_constant__ ExchangeParams p) {
  const auto& g = p.geometry;
  const int axis = blockIdx.y, entries = axis ? g.rows : g.cols;
  const int patches = g.tokens - g.prefix;
  const std::int64_t count = p.sets * g.batch_heads * patches * entries;
  const std::int64_t i = std::int64_t(blockIdx.x) * kPerBlock + threadIdx.x;
  if (i >= count || p.gradients[axis] == nullptr) return;
  const int entry = i % entries, patch = i / entries % patches;
  const std::int64_t head = i / entries / patches;
  const std::int64_t own = p.add_sets ? head % g.batch_heads : head;
  static_cast<T*>(p.gradients[axis])[i] =
      narrow<T>(p.own[axis][(own * entries + entry) * g.padded_tokens + g.prefix + patch]);
}

std::int64_t blocks_for(const Geometry& g, std::int64_t sets) {
  const std::int64_t entries = g.rows > g.cols ? g.rows : g.cols;
  return (sets * g.batch_heads * entries * g.padded_tokens + kPerBlock - 1) / kPerBlock;
}

}  // namespace

template <class T>
void import_vectors(const ExchangeParams& p, cudaStream_t stream) {
  launch(import_kernel<T>, blocks_for(p.geometry, p.sets), 2, kPerBlock, 0, stream, p);
}
template <class T>
void export_gradients(const ExchangeParams& p, cudaStream_t stream) {
  launch(export_kernel<T>, blocks_for(p.geometry, p.sets), 2, kPerBlock, 0, stream, p);
}

#define SAPE2_INSTANTIATE(T)                                              \
  template void import_vectors<T>(const ExchangeParams&, cudaStream_t);   \
  template void export_gradients<T>(const ExchangeParams&, cudaStream_t); \
  template void near_vectors<T>(const NearVectorParams&, cudaStream_t);
SAPE2_INSTANTIATE(Bf16)
SAPE2_INSTANTIATE(Fp16)
SAPE2_INSTANTIATE(float)
#undef SAPE2_INSTANTIATE

}  // namespace sape2::kernels::cuda
