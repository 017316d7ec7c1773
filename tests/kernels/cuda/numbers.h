#pragma once

#include "sape2/kernels/types.h"

#include "reference.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <random>

/// Random numbers, and numbers as the element types hold them.
namespace sape2::kernels::test {

inline std::size_t bytes_of(DType type) {
  return type == DType::float32 ? 4 : 2;
}

inline std::uint16_t to_bfloat16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
inline float from_bfloat16(std::uint16_t x) {
  return std::bit_cast<float>(std::uint32_t{x} << 16);
}

inline std::vector<unsigned char> encoded(const Numbers& numbers, DType type) {
  std::vector<unsigned char> bytes(numbers.size() * bytes_of(type));
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const auto x = static_cast<float>(numbers[i]);
    if (type == DType::float32) {
      std::memcpy(&bytes[4 * i], &x, 4);
    } else {
      const auto half = static_cast<_Float16>(x);
      const std::uint16_t bits =
          type == DType::bfloat16 ? to_bfloat16(x) : std::bit_cast<std::uint16_t>(half);
      std::memcpy(&bytes[2 * i], &bits, 2);
    }
  }
  return bytes;
}

inline Numbers decoded(const std::vector<unsigned char>& bytes, DType type) {
  Numbers numbers(bytes.size() / bytes_of(type));
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (type == DType::float32) {
      float x;
      std::memcpy(&x, &bytes[4 * i], 4);
      numbers[i] = x;
    } else {
      std::uint16_t bits;
      std::memcpy(&bits, &bytes[2 * i], 2);
      numbers[i] = type == DType::bfloat16 ? from_bfloat16(bits)
                                           : static_cast<double>(std::bit_cast<_Float16>(bits));
    }
  }
  return numbers;
}

inline Numbers rounded(const Numbers& numbers, DType type) {
  return decoded(encoded(numbers, type), type);
}

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(engine_);
  }
  bool coin() { return between(0, 1) == 1; }
  Numbers normal(std::int64_t count, double deviation) {
    std::normal_distribution<double> distribution(0, deviation);
    Numbers numbers(count);
    for (double& x : numbers) x = distribution(engine_);
    return numbers;
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace sape2::kernels::test
