#include "sape2/kernels/cuda_training.h"

#include "kernels/cuda/host/call.h"
#include "kernels/cuda/host/geometry.h"
#include "kernels/cuda/host/launch.h"
#include "kernels/cuda/training/vectors4.cuh"

#include <cmath>

namespace sape2::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kAtOnce = 4;           // images whose loads are under way together
constexpr int kWantedBlocks = 1056;  // eight for each multiprocessor of a large GPU
constexpr int kLanes = 32, kGroups = 32;

/// A thread keeps to four neighbouring channels of one token, so it finds their angles once, and
/// walks over the images of its slice.
template <class T>
struct Walk {
  Rotation rotation;
  float theta[kWidestTurnedHead / 2];
  int images, heads, rows, cols, prefix, quads;  // quads: groups of four channels of a head
  int tensors;                                   // q, k and perhaps v, which does not turn
  float direction;                               // 1 forward, −1 back
  struct Tensor {
    const T* from;
    T* to;
    std::int64_t from_image, from_head, from_token, to_image, to_head, to_token;
  } of[3];
  // Where angles have gradients: the turned channels, and for each slice, patch, q or k, head and
  // pair the sum over images.
  struct Turned {
    const T* data;
    std::int64_t image, head, token;
  } turned[2];
  float* partials;
};

template <class T>
__device__ float angle(const Walk<T>& walk, int patch, int head, int pair) {
  const int pairs = 2 * walk.quads;
  const auto x = static_cast<float>(patch % walk.cols), y = static_cast<float>(patch / walk.cols);
  switch (walk.rotation.angles) {
    case Rotation::Angles::raster:
      return static_cast<float>(patch) * walk.theta[pair];
    case Rotation::Angles::axial:
      return pair < pairs / 2 ? x * walk.theta[pair] : y * walk.theta[pair - pairs / 2];
    default:
      return x * walk.rotation.fx[head * pairs + pair] + y * walk.rotation.fy[head * pairs + pair];
  }
}

template <class T, bool WithAngles>
__global__ void __launch_bounds__(kThreads) walk_kernel(const __grid_constant__ Walk<T> walk) {
  const std::int64_t index = std::int64_t(blockIdx.x) * kThreads + threadIdx.x;
  const int quad = static_cast<int>(index % walk.quads);
  std::int64_t rest = index / walk.quads;
  const int head = static_cast<int>(rest % walk.heads);
  rest /= walk.heads;
  const int which = static_cast<int>(rest % walk.tensors);
  const std::int64_t token = rest / walk.tensors;
  const std::int64_t patches = std::int64_t(walk.rows) * walk.cols;
  if (token >= walk.prefix + patches) return;

  const auto& of = walk.of[which];
  const T* from = of.from + head * of.from_head + token * of.from_token + quad * 4;
  T* to = of.to + head * of.to_head + token * of.to_token + quad * 4;
  const bool turns = which < 2 && token >= walk.prefix;
  if (!turns && from == to) return;
  const int patch = static_cast<int>(token - walk.prefix);
  float cosine[2] = {1.0F, 1.0F}, sine[2] = {};
  if (turns) {
    for (int i = 0; i < 2; ++i)
      sincosf(angle(walk, patch, head, 2 * quad + i), &sine[i], &cosine[i]);
  }

  float dangle[2] = {};
  for (int first = blockIdx.y; first < walk.images; first += kAtOnce * gridDim.y) {
    Bits4<T> bits[kAtOnce], turned[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int image = first + i * gridDim.y;
      if (image >= walk.images) continue;
      bits[i] = load_bits(from + image * of.from_image);
      if constexpr (WithAngles) {
        const auto& channels = walk.turned[which];
        turned[i] = load_bits(channels.data + image * channels.image + head * channels.head +
                              token * channels.token + quad * 4);
      }
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int image = first + i * gridDim.y;
      if (image >= walk.images) continue;
      Four v = widened<T>(bits[i]);
#pragma unroll
      for (int p = 0; p < 2; ++p) {
        const float a = v.x[2 * p], b = v.x[2 * p + 1], s = walk.direction * sine[p];
        if constexpr (WithAngles) {
          const Four channels = widened<T>(turned[i]);
          dangle[p] += channels.x[2 * p] * b - channels.x[2 * p + 1] * a;
        }
        if (!turns) continue;
        v.x[2 * p] = a * cosine[p] - b * s;
        v.x[2 * p + 1] = a * s + b * cosine[p];
      }
      store4(to + image * of.to_image, v);
    }
  }
  if constexpr (WithAngles) {
    const std::int64_t row = (blockIdx.y * patches + patch) * 2 + which;
    float* const sums = walk.partials + (row * walk.heads + head) * 2 * walk.quads + 2 * quad;
    *reinterpret_cast<float2*>(sums) = make_float2(dangle[0], dangle[1]);
  }
}

/// dfx = Σ x · dangle, dfy = Σ y · dangle over slices, patches, q and k.
__global__ void __launch_bounds__(kLanes* kGroups)
    add_kernel(const float* partials, std::int64_t terms, int cols, int patches, int width,
               float* dfx, float* dfy) {
  __shared__ float2 groups[kGroups][kLanes];
  const int lane = threadIdx.x % kLanes, group = threadIdx.x / kLanes;
  const int column = blockIdx.x * kLanes + lane;
  float2 sum = make_float2(0.0F, 0.0F);
  if (column < width) {
#pragma unroll 8
    for (std::int64_t term = group; term < terms; term += kGroups) {
      const auto patch = static_cast<int>(term / 2 % patches);
      const float value = partials[term * width + column];
      sum.x += value * static_cast<float>(patch % cols);
      sum.y += value * static_cast<float>(patch / cols);
    }
  }
  groups[group][lane] = sum;
  __syncthreads();
  if (group != 0 || column >= width) return;
  for (int other = 1; other < kGroups; ++other) {
    sum.x += groups[other][lane].x;
    sum.y += groups[other][lane].y;
  }
  dfx[column] = sum.x;
  dfy[column] = sum.y;
}

void check_sizes(const Shape& shape, const Rotation& rotation) {
  const bool mixed = rotation.angles == Rotation::Angles::mixed;
  if (shape.head_size < 4 || shape.head_size % 4 != 0 || shape.head_size > kWidestTurnedHead)
    throw Error("rotary: a head size of " + std::to_string(shape.head_size) +
                "; a multiple of 4 up to " + std::to_string(kWidestTurnedHead) + " was expected");
  if (shape.images < 0 || shape.heads < 1 || shape.rows < 1 || shape.cols < 1 || shape.prefix < 0 ||
      std::max({shape.images, shape.heads, shape.tokens()}) > kMostTokens)
    throw Error("rotary: " + std::to_string(shape.images) + " images of " +
                std::to_string(shape.heads) + " heads and " + std::to_string(shape.prefix) + " + " +
                std::to_string(shape.rows) + " × " + std::to_string(shape.cols) +
                " tokens; positive sizes up to " + std::to_string(kMostTokens) + " were expected");
  if (mixed && (rotation.fx == nullptr || rotation.fy == nullptr))
    throw Error("rotary: mixed angles without frequencies; pass fx and fy");
}

template <class T>
typename Walk<T>::Tensor tensor(const ConstView& from, const View& to) {
  return {static_cast<const T*>(from.data),
          static_cast<T*>(to.data),
          from.image_stride,
          from.head_stride,
          from.token_stride,
          to.image_stride,
          to.head_stride,
          to.token_stride};
}

template <class T>
typename Walk<T>::Turned turned_tensor(const ConstView& view) {
  return {static_cast<const T*>(view.data), view.image_stride, view.head_stride, view.token_stride};
}

template <class T>
Walk<T> walk_over(const Shape& shape, const Rotation& rotation, int tensors, float direction) {
  Walk<T> walk{};
  walk.rotation = rotation;
  walk.images = static_cast<int>(shape.images);
  walk.heads = static_cast<int>(shape.heads);
  walk.rows = static_cast<int>(shape.rows);
  walk.cols = static_cast<int>(shape.cols);
  walk.prefix = static_cast<int>(shape.prefix);
  walk.quads = static_cast<int>(shape.head_size / 4);
  walk.tensors = tensors;
  walk.direction = direction;
  const bool raster = rotation.angles == Rotation::Angles::raster;
  const int count = raster ? 2 * walk.quads : walk.quads;
  for (int t = 0; t < count; ++t)
    walk.theta[t] = static_cast<float>(std::pow(raster ? 10000.0 : 100.0, -double(t) / count));
  return walk;
}

std::int64_t blocks_of(const Shape& shape, int tensors) {
  const std::int64_t threads = shape.tokens() * tensors * shape.heads * (shape.head_size / 4);
  return (threads + kThreads - 1) / kThreads;
}

int slices_of(const Shape& shape, int tensors) {
  const std::int64_t wanted = kWantedBlocks / blocks_of(shape, tensors);
  return static_cast<int>(std::max<std::int64_t>(1, std::min(wanted, shape.images)));
}

}  // namespace

void rotary_forward(const Shape& shape, DType dtype, const Rotation& rotation,
                    const RotaryHeads& heads, const TurnedHeads& turned, void* stream) {
  check_sizes(shape, rotation);
  if (shape.images == 0) return;
  dispatch_type(dtype, [&](auto type) {
    using T = decltype(type);
    auto walk = walk_over<T>(shape, rotation, 3, 1.0F);
    walk.of[0] = tensor<T>(heads.q, turned.q);
    walk.of[1] = tensor<T>(heads.k, turned.k);
    walk.of[2] = tensor<T>(heads.v, turned.v);
    launch(walk_kernel<T, false>, blocks_of(shape, 3), slices_of(shape, 3), kThreads, 0,
           static_cast<cudaStream_t>(stream), walk);
  });
}

std::size_t rotary_workspace(const Shape& shape) {
  return static_cast<std::size_t>(slices_of(shape, 2) * shape.patches() * shape.heads *
                                  shape.head_size) *
         sizeof(float);
}

void rotary_backward(const Shape& shape, DType dtype, const Rotation& rotation,
                     const RotaryGradients& gradients, void* workspace, void* stream) {
  check_sizes(shape, rotation);
  const auto on = static_cast<cudaStream_t>(stream);
  const bool with_angles = gradients.dfx != nullptr && gradients.dfy != nullptr;
  const int width = static_cast<int>(shape.heads * shape.head_size / 2);
  const int slices = slices_of(shape, 2);
  dispatch_type(dtype, [&](auto type) {
    using T = decltype(type);
    auto walk = walk_over<T>(shape, rotation, 2, -1.0F);
    walk.of[0] = tensor<T>(as_const(gradients.dq), gradients.dq);
    walk.of[1] = tensor<T>(as_const(gradients.dk), gradients.dk);
    walk.turned[0] = turned_tensor<T>(gradients.q);
    walk.turned[1] = turned_tensor<T>(gradients.k);
    walk.partials = static_cast<float*>(workspace);
    launch(with_angles ? walk_kernel<T, true> : walk_kernel<T, false>, blocks_of(shape, 2), slices,
           kThreads, 0, on, walk);
  });
  if (!with_angles) return;
  launch(add_kernel, (width + kLanes - 1) / kLanes, 1, kLanes * kGroups, 0, on,
         static_cast<const float*>(workspace), slices * shape.patches() * 2,
         static_cast<int>(shape.cols), static_cast<int>(shape.patches()), width, gradients.dfx,
         gradients.dfy);
}

}  // namespace sape2::kernels::cuda
