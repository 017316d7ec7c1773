#include "kernels/cuda/host/call.h"
#include "kernels/cuda/host/launch.h"
#include "kernels/cuda/training/columns.h"
#include "kernels/cuda/training/vectors4.cuh"

// One warp a row; a lane holds `kQuads` groups of four neighbours.
namespace sape2::kernels::cuda {
namespace {

constexpr int kWarpsForward = 4;
constexpr int kWarpsBackward = 8;

template <class T>
__device__ const T* typed(const void* pointer) {
  return static_cast<const T*>(pointer);
}

template <class T, int kQuads>
__global__ void __launch_bounds__(32 * kWarpsForward)
    forward_kernel(const ResidualNorm p, const ResidualNormOutputs to) {
  const int lane = threadIdx.x % 32, width = static_cast<int>(p.width);
  const std::int64_t row = std::int64_t(blockIdx.x) * kWarpsForward + threadIdx.x / 32;
  if (row >= p.rows) return;
  const std::int64_t start = row * width;
  const float factor = p.factor == nullptr ? 1.0F : p.factor[row / p.rows_per_image];
  Four v[kQuads];
  float sum = 0.0F;
#pragma unroll
  for (int q = 0; q < kQuads; ++q) {
    const int column = (q * 32 + lane) * 4;
    v[q] = {};
    if (column >= width) continue;
    v[q] = load4(typed<T>(p.x) + start + column);
    if (p.branch != nullptr) {
      Four branch = load4(typed<T>(p.branch) + start + column);
      if (p.branch_bias != nullptr) {
        const Four bias = load4(typed<T>(p.branch_bias) + column);
        for (int i = 0; i < 4; ++i) branch.x[i] += bias.x[i];
      }
      for (int i = 0; i < 4; ++i) v[q].x[i] += factor * branch.x[i];
      v[q] = rounded<T>(v[q]);
      store4(static_cast<T*>(to.sum) + start + column, v[q]);
    }
    for (float x : v[q].x) sum += x;
  }
  const float mean = warp_sum(sum) / width;
  float squares = 0.0F;
#pragma unroll
  for (int q = 0; q < kQuads; ++q) {
    if ((q * 32 + lane) * 4 >= width) continue;
    for (float x : v[q].x) squares += (x - mean) * (x - mean);
  }
  const float inverse = 1.0F / sqrtf(warp_sum(squares) / width + p.epsilon);
#pragma unroll
  for (int q = 0; q < kQuads; ++q) {
    const int column = (q * 32 + lane) * 4;
    if (column >= width) continue;
    const Four weight = load4(typed<T>(p.weight) + column);
    const Four bias = load4(typed<T>(p.bias) + column);
    for (int i = 0; i < 4; ++i) v[q].x[i] = (v[q].x[i] - mean) * inverse * weight.x[i] + bias.x[i];
    store4(static_cast<T*>(to.normed) + start + column, v[q]);
  }
  if (lane == 0) {
    to.statistics[2 * row] = mean;
    to.statistics[2 * row + 1] = inverse;
  }
}

/// Adds the warps' sums in a fixed order and leaves one row of partial sums for the block.
template <int kQuads>
__device__ void leave_partials(const Four (&sums)[kQuads], float* shared, int width, float* to) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  __syncthreads();
#pragma unroll
  for (int q = 0; q < kQuads; ++q) {
    const int column = (q * 32 + lane) * 4;
    if (column < width) store4(shared + warp * width + column, sums[q]);
  }
  __syncthreads();
  for (int column = threadIdx.x; column < width; column += blockDim.x) {
    float total = 0.0F;
    for (int w = 0; w < kWarpsBackward; ++w) total += shared[w * width + column];
    to[column] = total;
  }
}

/// What the backward pass reads of a row; loaded a row ahead, as a warp has little else to wait
/// for.
template <class T, int kQuads>
struct BackwardRow {
  Bits4<T> sum[kQuads], dnormed[kQuads], dsum[kQuads];
  float mean, inverse;

  __device__ void load(const ResidualNorm& p, const void* sums, const float* statistics,
                       const ResidualNormGradients& d, std::int64_t row) {
    if (row >= p.rows) return;
    mean = statistics[2 * row];
    inverse = statistics[2 * row + 1];
#pragma unroll
    for (int q = 0; q < kQuads; ++q) {
      const int column = (q * 32 + static_cast<int>(threadIdx.x) % 32) * 4;
      if (column >= p.width) continue;
      sum[q] = load_bits(typed<T>(sums) + row * p.width + column);
      dnormed[q] = load_bits(typed<T>(d.dnormed) + row * p.width + column);
      if (d.dsum != nullptr) dsum[q] = load_bits(typed<T>(d.dsum) + row * p.width + column);
    }
  }
};

template <class T, int kQuads>
__global__ void __launch_bounds__(32 * kWarpsBackward)
    backward_kernel(const ResidualNorm p, const void* sums, const float* statistics,
                    const ResidualNormGradients d, float* partials) {
  extern __shared__ float shared[];
  const int lane = threadIdx.x % 32, width = static_cast<int>(p.width);
  Four weight[kQuads], dweight[kQuads], dbias[kQuads], dbranch_bias[kQuads];
#pragma unroll
  for (int q = 0; q < kQuads; ++q) {
    const int column = (q * 32 + lane) * 4;
    dweight[q] = dbias[q] = dbranch_bias[q] = weight[q] = {};
    if (column < width) weight[q] = load4(typed<T>(p.weight) + column);
  }
  const std::int64_t step = std::int64_t(gridDim.x) * kWarpsBackward;
  std::int64_t row = std::int64_t(blockIdx.x) * kWarpsBackward + threadIdx.x / 32;
  BackwardRow<T, kQuads> next;
  next.load(p, sums, statistics, d, row);
  for (; row < p.rows; row += step) {
    const BackwardRow<T, kQuads> now = next;
    next.load(p, sums, statistics, d, row + step);
    const std::int64_t start = row * width;
    const float mean = now.mean, inverse = now.inverse;
    Four x[kQuads], g[kQuads];
    float first = 0.0F, second = 0.0F;
#pragma unroll
    for (int q = 0; q < kQuads; ++q) {
      const int column = (q * 32 + lane) * 4;
      x[q] = g[q] = {};
      if (column >= width) continue;
      x[q] = widened<T>(now.sum[q]);
      g[q] = widened<T>(now.dnormed[q]);
      for (int i = 0; i < 4; ++i) {
        x[q].x[i] = (x[q].x[i] - mean) * inverse;
        dweight[q].x[i] += g[q].x[i] * x[q].x[i];
        dbias[q].x[i] += g[q].x[i];
        g[q].x[i] *= weight[q].x[i];
        first += g[q].x[i];
        second += g[q].x[i] * x[q].x[i];
      }
    }
    first = warp_sum(first) / width;
    second = warp_sum(second) / width;
    const float factor = p.factor == nullptr ? 1.0F : p.factor[row / p.rows_per_image];
#pragma unroll
    for (int q = 0; q < kQuads; ++q) {
      const int column = (q * 32 + lane) * 4;
      if (column >= width) continue;
      Four dx{};
      if (d.dsum != nullptr) dx = widened<T>(now.dsum[q]);
      for (int i = 0; i < 4; ++i) dx.x[i] += inverse * (g[q].x[i] - first - x[q].x[i] * second);
      store4(static_cast<T*>(d.dx) + start + column, dx);
      for (float& value : dx.x) value *= factor;
      for (int i = 0; i < 4; ++i) dbranch_bias[q].x[i] += dx.x[i];
      if (d.dbranch != nullptr) store4(static_cast<T*>(d.dbranch) + start + column, dx);
    }
  }
  float* const mine = partials + std::int64_t(blockIdx.x) * 3 * width;
  leave_partials(dweight, shared, width, mine);
  leave_partials(dbias, shared, width, mine + width);
  leave_partials(dbranch_bias, shared, width, mine + 2 * width);
}

/// Calls use(integral_constant) with the smallest compiled number of groups a lane needs.
template <class Use>
void dispatch_width(std::int64_t width, Use use) {
  if (width <= 128) return use(std::integral_constant<int, 1>());
  if (width <= 256) return use(std::integral_constant<int, 2>());
  if (width <= 384) return use(std::integral_constant<int, 3>());
  if (width <= 768) return use(std::integral_constant<int, 6>());
  return use(std::integral_constant<int, 16>());
}

void check_norm(const ResidualNorm& p) {
  check_matrix("residual_norm", p.rows, p.width);
  if (p.width > kWidestNorm || p.rows_per_image < 1)
    throw Error("residual_norm: the width is " + std::to_string(p.width) + "; at most " +
                std::to_string(kWidestNorm) + " was expected");
}

}  // namespace

void residual_norm_forward(const ResidualNorm& p, const ResidualNormOutputs& outputs,
                           void* stream) {
  check_norm(p);
  dispatch_type(p.dtype, [&](auto type) {
    dispatch_width(p.width, [&](auto quads) {
      launch(forward_kernel<decltype(type), quads()>, (p.rows + kWarpsForward - 1) / kWarpsForward,
             1, 32 * kWarpsForward, 0, static_cast<cudaStream_t>(stream), p, outputs);
    });
  });
}

void residual_norm_backward(const ResidualNorm& p, const void* sum, const float* statistics,
                            const ResidualNormGradients& d, void* workspace, void* stream) {
  check_norm(p);
  const auto on = static_cast<cudaStream_t>(stream);
  auto* const partials = static_cast<float*>(workspace);
  const auto blocks = static_cast<int>(std::min<std::int64_t>(
      kMostPartials, std::max<std::int64_t>(1, (p.rows + kWarpsBackward - 1) / kWarpsBackward)));
  const int shared = static_cast<int>(kWarpsBackward * p.width * sizeof(float));
  dispatch_type(p.dtype, [&](auto type) {
    dispatch_width(p.width, [&](auto quads) {
      launch(backward_kernel<decltype(type), quads()>, blocks, 1, 32 * kWarpsBackward, shared, on,
             p, sum, statistics, d, partials);
    });
  });
  add_partial_columns(p.dtype, partials, blocks, 3, p.width, {{d.dweight, d.dbias, d.dbranch_bias}},
                      on);
}

}  // namespace sape2::kernels::cuda
