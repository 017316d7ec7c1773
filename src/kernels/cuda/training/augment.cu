#include "sape2/kernels/cuda_training.h"

#include "kernels/cuda/host/device.h"
#include "kernels/cuda/host/launch.h"

// A whole recipe for one image in one block: its bytes stay in shared memory from the data set to
// the normalised result. All arithmetic on bytes is in whole numbers, and no product is fused with
// a sum, so that every image equals what src/data/augment makes of it, bit for bit.
//
// Values of operations: move: x = a·(column + ½) + b·(row + ½) + c and y alike, six numbers in
// 1/65536; brightness, color, contrast, sharpness: the factor in 1/65536; posterize: the mask of
// bits kept; solarize: the threshold.
namespace sape2::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kFixedBits = 16;
constexpr int kOutside = 128;
constexpr int kMostChannels = 4;
using Byte = std::uint8_t;
using Operation = PlannedOperation;

struct Image {
  int channels, height, width;
  __device__ int pixels() const { return height * width; }
  __device__ int size() const { return channels * height * width; }
};

__device__ int grey(const Image& im, const Byte* from, int pixel) {
  if (im.channels != 3) return from[pixel];
  const int n = im.pixels();
  return (from[pixel] * 19595 + from[n + pixel] * 38470 + from[2 * n + pixel] * 7471 + 32768) >> 16;
}

__device__ Byte as_byte(int value) {
  return static_cast<Byte>(value < 0 ? 0 : value > 255 ? 255 : value);
}

__device__ int sum_of_block(int x, int* shared) {
  __syncthreads();
  shared[threadIdx.x] = x;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
  }
  __syncthreads();
  return shared[0];
}

__device__ Byte moved(const Image& im, const Operation& op, const Byte* from, int i) {
  const int pixel = i % im.pixels(), plane = i - pixel;
  const std::int64_t column = pixel % im.width * 2 + 1, row = pixel / im.width * 2 + 1;
  const auto* const v = op.value;
  const auto x =
      static_cast<int>((v[0] * column + v[1] * row + 2 * std::int64_t(v[2])) >> (kFixedBits + 1));
  const auto y =
      static_cast<int>((v[3] * column + v[4] * row + 2 * std::int64_t(v[5])) >> (kFixedBits + 1));
  const bool inside = x >= 0 && x < im.width && y >= 0 && y < im.height;
  return inside ? from[plane + y * im.width + x] : kOutside;
}

// (1 1 1; 1 5 1; 1 1 1) / 13, rounded; the outermost pixels stay.
__device__ int smoothed(const Image& im, const Byte* from, int i) {
  const int pixel = i % im.pixels(), y = pixel / im.width, x = pixel % im.width;
  if (y == 0 || x == 0 || y == im.height - 1 || x == im.width - 1) return from[i];
  int sum = from[i] * 4;
  for (int dy = -1; dy <= 1; ++dy)
    for (int dx = -1; dx <= 1; ++dx) sum += from[i + dy * im.width + dx];
  return (sum * 2 + 13) / 26;
}

__device__ Byte enhanced(int value, int base, int factor) {
  return as_byte((((value - base) * factor) >> kFixedBits) + base);
}

// Counts the values of each plane; `table` has 256 numbers a plane.
__device__ void count_values(const Image& im, const Byte* from, int* table) {
  for (int i = threadIdx.x; i < im.channels * 256; i += kThreads) table[i] = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < im.size(); i += kThreads)
    atomicAdd(&table[i / im.pixels() * 256 + from[i]], 1);
  __syncthreads();
}

// Turns counts into the values that equalize gives; one thread a plane, as the sum runs along.
__device__ void make_equalizing(const Image& im, int* table) {
  if (threadIdx.x < im.channels) {
    int* const counts = table + threadIdx.x * 256;
    int brightest = 255;
    while (counts[brightest] == 0) --brightest;
    const int step = (im.pixels() - counts[brightest]) / 255;
    int below = 0;
    for (int value = 0; value < 256; ++value) {
      const int count = counts[value];
      const int equal = step == 0 ? value : (below + step / 2) / step;
      counts[value] = equal > 255 ? 255 : equal;
      below += count;
    }
  }
  __syncthreads();
}

// Turns counts into the values that auto_contrast gives.
__device__ void make_stretching(const Image& im, int* table) {
  if (threadIdx.x < im.channels) {
    int* const counts = table + threadIdx.x * 256;
    int low = 0, high = 255;
    while (counts[low] == 0) ++low;
    while (counts[high] == 0) --high;
    for (int value = low; value <= high; ++value)
      counts[value] = high > low ? (value - low) * 255 / (high - low) : value;
  }
  __syncthreads();
}

__device__ void apply(const Image& im, const Operation& op, const Byte* from, Byte* to,
                      int* table) {
  int base = 0;
  if (op.kind == Operation::contrast) {
    int sum = 0;
    for (int i = threadIdx.x; i < im.pixels(); i += kThreads) sum += grey(im, from, i);
    const std::int64_t total = sum_of_block(sum, table);
    base = static_cast<int>((total * 2 + im.pixels()) / (2 * im.pixels()));
  }
  const bool by_table = op.kind == Operation::equalize || op.kind == Operation::auto_contrast;
  if (by_table) count_values(im, from, table);
  if (op.kind == Operation::equalize) make_equalizing(im, table);
  if (op.kind == Operation::auto_contrast) make_stretching(im, table);
  const int value = op.value[0];
  for (int i = threadIdx.x; i < im.size(); i += kThreads) {
    const int x = from[i];
    Byte result = from[i];
    switch (op.kind) {
      case Operation::move:
        result = moved(im, op, from, i);
        break;
      case Operation::brightness:
      case Operation::contrast:
        result = enhanced(x, base, value);
        break;
      case Operation::color:
        result = enhanced(x, grey(im, from, i % im.pixels()), value);
        break;
      case Operation::sharpness:
        result = enhanced(x, smoothed(im, from, i), value);
        break;
      case Operation::posterize:
        result = static_cast<Byte>(x & value);
        break;
      case Operation::solarize:
        result = static_cast<Byte>(x < value ? x : 255 - x);
        break;
      case Operation::auto_contrast:
      case Operation::equalize:
        result = static_cast<Byte>(table[i / im.pixels() * 256 + x]);
        break;
      default:
        break;
    }
    to[i] = result;
  }
  __syncthreads();
}

__device__ bool in_box(const std::int32_t (&box)[4], int y, int x) {
  return y >= box[0] && x >= box[1] && y < box[2] && x < box[3];
}

__global__ void __launch_bounds__(kThreads) image_kernel(const __grid_constant__ AugmentPass p) {
  extern __shared__ int memory[];
  int* const table = memory;  // 256 numbers a channel
  const Image im{p.channels, p.height, p.width};
  Byte* from = reinterpret_cast<Byte*>(memory + kMostChannels * 256);
  Byte* to = from + im.size();
  const PlannedImage plan = p.plan[blockIdx.x];
  const Byte* const source = p.data + plan.source * im.size();
  for (int i = threadIdx.x; i < im.size(); i += kThreads) {
    const int pixel = i % im.pixels(), plane = i - pixel;
    const int column = pixel % im.width;
    const int y = plan.top + pixel / im.width - p.padding;
    const int x = plan.left + (plan.flip ? im.width - 1 - column : column) - p.padding;
    const bool inside = x >= 0 && x < im.width && y >= 0 && y < im.height;
    from[i] = inside ? source[plane + y * im.width + x] : 0;
  }
  __syncthreads();
  for (int k = 0; k < p.operations; ++k) {
    const Operation op = p.calls[std::int64_t(blockIdx.x) * p.operations + k];
    if (op.kind == Operation::none) continue;
    apply(im, op, from, to, table);
    Byte* const old = from;
    from = to;
    to = old;
  }
  float* const out = (p.mixes ? p.scratch : p.out) + std::int64_t(blockIdx.x) * im.size();
  for (int i = threadIdx.x; i < im.size(); i += kThreads) {
    const int pixel = i % im.pixels(), channel = i / im.pixels();
    const float value =
        __fmul_rn(__fsub_rn(static_cast<float>(from[i]), p.mean[channel]), p.factor[channel]);
    out[i] = in_box(plan.erased, pixel / im.width, pixel % im.width) ? 0.0F : value;
  }
}

__device__ float blended(float own, float other, float share) {
  return __fadd_rn(__fmul_rn(other, __fsub_rn(1.0F, share)), __fmul_rn(own, share));
}

__global__ void __launch_bounds__(kThreads) mix_kernel(const __grid_constant__ AugmentPass p) {
  const Image im{p.channels, p.height, p.width};
  const PlannedImage plan = p.plan[blockIdx.x];
  if (p.mixes) {
    const float* const own = p.scratch + std::int64_t(blockIdx.x) * im.size();
    const float* const other = p.scratch + std::int64_t(plan.partner) * im.size();
    float* const out = p.out + std::int64_t(blockIdx.x) * im.size();
    for (int i = threadIdx.x; i < im.size(); i += kThreads) {
      const int pixel = i % im.pixels();
      const bool taken = in_box(plan.box, pixel / im.width, pixel % im.width);
      out[i] = blended(own[i], other[i], taken ? 0.0F : plan.share_of_pixels);
    }
  }
  const std::int64_t label = p.labels[plan.source];
  const std::int64_t other = p.mixes ? p.labels[p.plan[plan.partner].source] : label;
  for (std::int64_t c = threadIdx.x; c < p.classes; c += kThreads) {
    const float mine = c == label ? p.target : p.other_target;
    const float theirs = c == other ? p.target : p.other_target;
    p.targets[blockIdx.x * p.classes + c] =
        p.mixes ? blended(mine, theirs, plan.share_of_targets) : mine;
  }
}

std::int64_t shared_bytes(std::int64_t channels, std::int64_t height, std::int64_t width) {
  return kMostChannels * 256 * 4 + 2 * channels * height * width;
}

}  // namespace

bool augment_fits(std::int64_t channels, std::int64_t height, std::int64_t width) {
  return channels >= 1 && channels <= kMostChannels && height >= 1 && width >= 1 && height <= 512 &&
         width <= 512 && shared_bytes(channels, height, width) <= shared_memory_limit();
}

void augment_pass(const AugmentPass& pass, void* stream) {
  if (!augment_fits(pass.channels, pass.height, pass.width))
    throw Error("augment_pass: images of " + std::to_string(pass.height) + " × " +
                std::to_string(pass.width) + " do not fit into a block's shared memory");
  const auto on = static_cast<cudaStream_t>(stream);
  const auto bytes = static_cast<int>(shared_bytes(pass.channels, pass.height, pass.width));
  launch(image_kernel, pass.images, 1, kThreads, bytes, on, pass);
  launch(mix_kernel, pass.images, 1, kThreads, 0, on, pass);
}

}  // namespace sape2::kernels::cuda
