#include "sape2/data/random.h"

#include <cmath>
#include <numbers>
#include <numeric>
#include <utility>

// Ours, because what the standard library and LibTorch draw differs between versions and devices.
namespace sape2::data {
namespace {

constexpr int kRounds = 10;

std::uint32_t low(std::uint64_t x) {
  return static_cast<std::uint32_t>(x);
}

std::uint32_t high(std::uint64_t x) {
  return static_cast<std::uint32_t>(x >> 32);
}

}  // namespace

PhiloxCounter philox4x32(PhiloxCounter counter, PhiloxKey key) {
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {high(b) ^ counter[1] ^ key[0], low(b), high(a) ^ counter[3] ^ key[1], low(a)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

// The counter's words: block of four draws, index, epoch, purpose with the index's upper bits.
Draws::Draws(std::uint64_t seed, std::uint64_t epoch, std::uint64_t index, Purpose purpose)
    : key_{low(seed), high(seed)},
      counter_{0, low(index), low(epoch),
               static_cast<std::uint32_t>(purpose) | (high(index) << 8)} {}

std::uint32_t Draws::next() {
  if (used_ == block_.size()) {
    block_ = philox4x32(counter_, key_);
    ++counter_[0];
    used_ = 0;
  }
  return block_[used_++];
}

std::uint32_t Draws::below(std::uint32_t bound) {
  return high(std::uint64_t{next()} * bound);
}

std::int64_t Draws::between(std::int64_t from, std::int64_t to) {
  return from + below(static_cast<std::uint32_t>(to - from + 1));
}

double Draws::uniform() {
  return next() * 0x1p-32;
}

double Draws::uniform(double from, double to) {
  return from + (to - from) * uniform();
}

bool Draws::chance(double probability) {
  return uniform() < probability;
}

double Draws::normal() {
  const double radius = std::sqrt(-2 * std::log1p(-uniform()));
  return radius * std::cos(2 * std::numbers::pi * uniform());
}

// Marsaglia and Tsang's method; shapes below 1 are reached from shape + 1.
double Draws::gamma(double shape) {
  if (shape < 1) {
    const double boost = std::pow(1 - uniform(), 1 / shape);
    return gamma(shape + 1) * boost;
  }
  const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = normal();
    const double t = 1 + c * x;
    if (t <= 0) continue;
    const double v = t * t * t;
    if (std::log1p(-uniform()) < 0.5 * x * x + d - d * v + d * std::log(v)) return d * v;
  }
}

double Draws::beta(double alpha) {
  if (alpha == 1) return uniform();
  const double a = gamma(alpha), b = gamma(alpha);
  return a + b > 0 ? a / (a + b) : static_cast<double>(chance(0.5));
}

std::vector<std::int64_t> shuffled(std::int64_t count, Draws draws) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  for (std::size_t i = order.size(); i > 1; --i) {
    std::swap(order[i - 1], order[draws.below(static_cast<std::uint32_t>(i))]);
  }
  return order;
}

}  // namespace sape2::data
