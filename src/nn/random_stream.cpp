#include "sape2/nn/random_stream.h"

#include <cmath>
#include <numbers>

namespace sape2::nn {
namespace {

// The finaliser of splitmix64.
uint64_t mixed(uint64_t bits) {
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9ULL;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebULL;
  return bits ^ (bits >> 31);
}

// FNV-1a, since std::hash may differ from one library to the next.
uint64_t hash(std::string_view name) {
  uint64_t value = 0xcbf29ce484222325ULL;
  for (char c : name) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return value;
}

}  // namespace

RandomStream::RandomStream(uint64_t seed, std::string_view name)
    : state_(mixed(mixed(seed) ^ hash(name))) {}

uint64_t RandomStream::next() {
  return mixed(state_ += 0x9e3779b97f4a7c15ULL);
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
