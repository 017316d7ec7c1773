#pragma once

#include "device.h"
#include "numbers.h"

#include <gtest/gtest.h>

namespace sape2::kernels::test {

/// Numbers on the device in one element type, and what that type makes of them.
class Held {
 public:
  Held(const Numbers& values, DType type)
      : type_(type), bytes_(values.size() * bytes_of(type)), values_(rounded(values, type)) {
    bytes_.upload(encoded(values, type).data());
  }
  /// Not written yet: not a number.
  Held(std::size_t count, DType type) : type_(type), bytes_(count * bytes_of(type)) {}

  void* data() const { return bytes_.data(); }
  float* floats() const { return static_cast<float*>(bytes_.data()); }
  double operator[](std::size_t i) const { return values_[i]; }
  Numbers read() const { return decoded(bytes_.download(), type_); }

 private:
  DType type_;
  DeviceBytes bytes_;
  Numbers values_;
};

/// By the size of the whole, as far as the type is good.
inline void expect_near(const Held& got, const Numbers& wanted, DType type, const char* what) {
  const Numbers values = got.read();
  double error = 0, size = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    error += (values[i] - wanted[i]) * (values[i] - wanted[i]);
    size += wanted[i] * wanted[i];
  }
  const double bound = type == DType::float32 ? 1e-5 : type == DType::bfloat16 ? 1e-2 : 2e-3;
  EXPECT_LE(std::sqrt(error), bound * std::sqrt(size) + 1e-12) << what;
}

inline constexpr DType kTypes[] = {DType::float32, DType::bfloat16, DType::float16};

}  // namespace sape2::kernels::test
