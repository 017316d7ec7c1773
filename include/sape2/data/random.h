#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace sape2::data {

using PhiloxCounter = std::array<std::uint32_t, 4>;
using PhiloxKey = std::array<std::uint32_t, 2>;

/// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): four random
/// words that are a pure function of a counter and a key.
PhiloxCounter philox4x32(PhiloxCounter counter, PhiloxKey key);

/// What numbers are drawn for. Each purpose has a stream of its own, so that switching one
/// augmentation on or off leaves the draws of the others as they were.
enum class Purpose : std::uint32_t {
  order,
  split,
  crop,
  flip,
  auto_augment,
  rand_augment,
  erase,
  mix,
  partner,
  shapes,
  grain,
  held_out,
  scale,
  colour,
};

/// Random numbers that depend on (seed, epoch, index, purpose) alone. They are drawn on the host,
/// whatever device the images live on: every device sees the same batches.
class Draws {
 public:
  Draws(std::uint64_t seed, std::uint64_t epoch, std::uint64_t index, Purpose purpose);

  std::uint32_t next();

  /// A whole number in [0, bound); bound must not be 0.
  std::uint32_t below(std::uint32_t bound);

  /// A whole number in [low, high], both ends included.
  std::int64_t between(std::int64_t low, std::int64_t high);

  /// A number in [0, 1), a multiple of 2^-32.
  double uniform();
  double uniform(double low, double high);

  bool chance(double probability);

  /// A number from Beta(alpha, alpha).
  double beta(double alpha);

 private:
  double normal();
  double gamma(double shape);

  PhiloxKey key_;
  PhiloxCounter counter_;
  PhiloxCounter block_{};
  unsigned used_ = 4;
};

/// 0 … count-1 in an order drawn from `draws`.
std::vector<std::int64_t> shuffled(std::int64_t count, Draws draws);

}  // namespace sape2::data
