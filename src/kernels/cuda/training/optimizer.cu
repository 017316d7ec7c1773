#include "sape2/kernels/cuda_training.h"

#include "kernels/cuda/common/element.cuh"
#include "kernels/cuda/host/launch.h"
#include "kernels/cuda/training/vectors4.cuh"

#include <algorithm>

namespace sape2::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kPieces = 120;           // that fit into a launch's arguments
constexpr std::int64_t kChunk = 8192;  // elements of a block
constexpr int kNormBlocks = 528;

struct N8 {
  GradientPiece pieces[kPieces];
};

template <class T>
__device__ void take(const GradientPiece& piece, std::int64_t begin, std::int64_t end, float* flat,
                     bool add) {
  const T* const from = static_cast<const T*>(piece.data);
  float* const to = flat + piece.offset;
  const bool aligned = reinterpret_cast<std::uintptr_t>(from) % (4 * sizeof(T)) == 0;
  const std::int64_t quads_end = aligned ? begin + (end - begin) / 4 * 4 : begin;
  for (std::int64_t i = begin + threadIdx.x * 4; i < quads_end; i += kThreads * 4) {
    Four value = load4(from + i);
    if (add) {
      const Four before = load4(to + i);
      for (int k = 0; k < 4; ++k) value.x[k] += before.x[k];
    }
    store4(to + i, value);
  }
  for (std::int64_t i = quads_end + threadIdx.x; i < end; i += kThreads)
    to[i] = (add ? to[i] : 0.0F) + widen(from[i]);
}

__global__ void __launch_bounds__(kThreads)
    gather_kernel(const __grid_constant__ N8 all, float* flat, bool add) {
  const GradientPiece& piece = all.pieces[blockIdx.y];
  const std::int64_t begin = blockIdx.x * kChunk;
  if (begin >= piece.count) return;
  const std::int64_t end = begin + kChunk < piece.count ? begin + kChunk : piece.count;
  if (piece.wide) {
    take<float>(piece, begin, end, flat, add);
  } else {
    take<Bf16>(piece, begin, end, flat, add);
  }
}

template <class T>
__device__ T sum_of_block(T x, T* shared) {
  shared[threadIdx.x] = x;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
  }
  __syncthreads();
  return shared[0];
}

__global__ void __launch_bounds__(kThreads)
    squares_kernel(const float* values, std::int64_t count, double* partials) {
  __shared__ double shared[kThreads];
  double sum = 0;
  const std::int64_t step = std::int64_t(gridDim.x) * kThreads * 4;
  for (std::int64_t i = (std::int64_t(blockIdx.x) * kThreads + threadIdx.x) * 4; i < count;
       i += step) {
    float part = 0.0F;
    if (i + 4 <= count) {
      const Four v = load4(values + i);
      for (float x : v.x) part += x * x;
    } else {
      for (std::int64_t k = i; k < count; ++k) part += values[k] * values[k];
    }
    sum += part;
  }
  sum = sum_of_block(sum, shared);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kThreads)
    norm_kernel(const double* partials, int count, float largest, float* norm) {
  __shared__ double shared[kThreads];
  double sum = 0;
  for (int i = threadIdx.x; i < count; i += kThreads) sum += partials[i];
  sum = sum_of_block(sum, shared);
  if (threadIdx.x != 0) return;
  const auto length = static_cast<float>(sqrt(sum));
  norm[0] = length;
  norm[1] = largest == 0 ? 1.0F : fminf(1.0F, largest / (length + 1e-6F));
}

__global__ void __launch_bounds__(kThreads) adam_kernel(const __grid_constant__ AdamPass p) {
  const std::int64_t i = (std::int64_t(blockIdx.x) * kThreads + threadIdx.x) * 4;
  if (i >= p.count) return;
  const float scale = *p.gradient_scale, step_size = p.numbers[0], square_scale = p.numbers[1];
  const bool decays = i < p.decayed;
  const float keep = decays ? p.numbers[2] : 1.0F;
  const float gradient_decay = decays ? p.gradient_decay : 0.0F;
  Four weight = load4(p.weights + i), mean = load4(p.mean + i), square = load4(p.square + i);
  const Four gradients = load4(p.gradients + i);
  for (int k = 0; k < 4; ++k) {
    const float gradient = gradients.x[k] * scale + weight.x[k] * gradient_decay;
    mean.x[k] = p.beta1 * mean.x[k] + (1.0F - p.beta1) * gradient;
    square.x[k] = p.beta2 * square.x[k] + (1.0F - p.beta2) * gradient * gradient;
    weight.x[k] = weight.x[k] * keep -
                  step_size * mean.x[k] / (sqrtf(square.x[k]) * square_scale + p.epsilon);
  }
  store4(p.weights + i, weight);
  store4(p.mean + i, mean);
  store4(p.square + i, square);
  if (i < p.rounded) store4(static_cast<Bf16*>(p.copy) + i, weight);
  if (p.average == nullptr) return;
  const float share = p.numbers[3];
  Four average = load4(p.average + i);
  for (int k = 0; k < 4; ++k) average.x[k] += share * (weight.x[k] - average.x[k]);
  store4(p.average + i, average);
}

}  // namespace

void gather_gradients(const GradientPiece* pieces, std::int64_t count, float* flat, bool add,
                      void* stream) {
  for (std::int64_t first = 0; first < count; first += kPieces) {
    const std::int64_t here = std::min<std::int64_t>(kPieces, count - first);
    N8 some{};
    std::int64_t longest = 0;
    for (std::int64_t i = 0; i < here; ++i) {
      some.pieces[i] = pieces[first + i];
      if (some.pieces[i].offset % 4 != 0)
        throw Error("gather_gradients: a piece begins at element " +
                    std::to_string(some.pieces[i].offset) + "; a multiple of 4 was expected");
      longest = std::max(longest, some.pieces[i].count);
    }
    launch(gather_kernel, (longest + kChunk - 1) / kChunk, static_cast<int>(here), kThreads, 0,
           static_cast<cudaStream_t>(stream), some, flat, add);
  }
}

std::size_t norm_workspace(std::int64_t) {
  return kNormBlocks * sizeof(double);
}

void clipping_norm(const float* values, std::int64_t count, float largest, float* norm,
                   void* workspace, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  auto* const partials = static_cast<double*>(workspace);
  launch(squares_kernel, kNormBlocks, 1, kThreads, 0, on, values, count, partials);
  launch(norm_kernel, 1, 1, kThreads, 0, on, partials, kNormBlocks, largest, norm);
}

void adam_pass(const AdamPass& pass, void* stream) {
  if (pass.count % 4 != 0 || pass.decayed % 4 != 0 || pass.rounded % 4 != 0)
    throw Error("adam_pass: parts of " + std::to_string(pass.count) + ", " +
                std::to_string(pass.decayed) + " and " + std::to_string(pass.rounded) +
                " elements; multiples of 4 were expected");
  launch(adam_kernel, (pass.count / 4 + kThreads - 1) / kThreads, 1, kThreads, 0,
         static_cast<cudaStream_t>(stream), pass);
}

}  // namespace sape2::kernels::cuda
