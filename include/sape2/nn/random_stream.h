#pragma once

#include <cstdint>
#include <string_view>

namespace sape2::nn {

/// Random numbers that depend on a seed and a name only: the same on every machine, for every
/// LibTorch, whatever was drawn before. A parameter that draws from a stream of its own name starts
/// with the same values in every model that has it, so encodings can be compared on equal weights.
class RandomStream {
 public:
  RandomStream(uint64_t seed, std::string_view name);

  /// Evenly spread over [0, 1).
  double uniform();

  /// Normal with mean 0 and deviation 1.
  double normal();

 private:
  uint64_t next();

  uint64_t state_;
  double spare_ = 0;
  bool has_spare_ = false;
};

}  // namespace sape2::nn
