#include "sape2/nn/random_stream.h"

#include "sape2/base/hash.h"

#include <cmath>
#include <numbers>

// Ours, because what the standard library and LibTorch draw differs between versions.
namespace sape2::nn {

RandomStream::RandomStream(uint64_t seed, std::string_view name)
    : state_(base::split_mix(base::split_mix(seed) ^ base::fnv1a(name))) {}

uint64_t RandomStream::next() {
  return base::split_mix(state_ += base::kSplitMixStep);
}

double RandomStream::uniform() {
  return static_cast<double>(next() >> 11) * 0x1p-53;
}

double RandomStream::normal() {
  if (has_spare_) {
    has_spare_ = false;
    return spare_;
  }
  // Box and Muller; 1 − u lies in (0, 1], so the logarithm is finite.
  const double radius = std::sqrt(-2 * std::log(1 - uniform()));
  const double angle = 2 * std::numbers::pi * uniform();
  spare_ = radius * std::sin(angle);
  has_spare_ = true;
  return radius * std::cos(angle);
}

}  // namespace sape2::nn
