#pragma once

#include "sape2/kernels/types.h"

#include <cstddef>
#include <cstdint>
#include <memory>

/// Linear layers and normalisation of rows of float32, for inference: weights are packed once and
/// used many times, and what follows a product happens before its sums leave the registers. Every
/// function works on the calling thread, so that whoever has many rows can share them out: a row's
/// result depends on that row alone, bit by bit. Wrong parameters throw sape2::Error.
namespace sape2::kernels {

/// The weights of a linear layer, in panels of 16 outputs.
class PackedWeights {
 public:
  /// None.
  PackedWeights() = default;

  /// Copies `weights`, (outputs, inputs), contiguous, of float32 or bfloat16, aligned or not. They
  /// keep their type; bfloat16 takes half the memory, and its products are exact in float32.
  /// They go to `place`, which has packed_bytes() aligned to 64 and outlives them; null: to memory
  /// of their own.
  PackedWeights(const void* weights, DType dtype, std::int64_t outputs, std::int64_t inputs,
                void* place = nullptr);

  /// How many bytes such weights take.
  static std::size_t packed_bytes(DType dtype, std::int64_t outputs, std::int64_t inputs);

  std::int64_t outputs() const { return outputs_; }
  std::int64_t inputs() const { return inputs_; }
  DType dtype() const { return dtype_; }
  std::size_t bytes() const { return bytes_; }

  /// float32: (panels, inputs, 16). bfloat16: (panels, ⌈inputs / 2⌉, 16, 2), so that a pair of
  /// weights is 32 bits. Outputs and inputs beyond the last are 0.
  const void* data() const { return memory_.get(); }

 private:
  struct Free {
    bool own;
    void operator()(void* memory) const;
  };

  std::int64_t outputs_ = 0, inputs_ = 0;
  DType dtype_ = DType::float32;
  std::size_t bytes_ = 0;
  std::unique_ptr<void, Free> memory_;
};

enum class Activation : std::uint8_t {
  none,
  gelu,  ///< the exact one: x · Φ(x)
};

/// What happens to a product on its way out, in this order.
struct LinearEpilogue {
  const float* bias = nullptr;  ///< (outputs), added; null: none
  Activation activation = Activation::none;
  const float* factor = nullptr;  ///< (outputs), multiplied with; null: none
  const float* added = nullptr;   ///< (rows, outputs), added; may be the output; null: none
  std::int64_t added_stride = 0;  ///< from one of its rows to the next
};

/// Rows of numbers, `stride` apart.
struct ConstRows {
  const float* data = nullptr;
  std::int64_t stride = 0;
};
struct Rows {
  float* data = nullptr;
  std::int64_t stride = 0;
};

/// y = epilogue(x · Wᵀ) for `rows` rows of x, (rows, inputs), into y, (rows, outputs). Every sum
/// runs over the inputs from the first to the last.
void linear(const PackedWeights& weights, std::int64_t rows, ConstRows x, Rows y,
            const LinearEpilogue& epilogue);

/// Starts the way of rows into the cache: those that other threads made, just before a product of
/// them, which would wait for each line by itself.
void fetch_rows(std::int64_t rows, std::int64_t width, ConstRows x);

/// Whether this CPU multiplies bfloat16 by itself: AVX-512 BF16 takes twice as many numbers at a
/// time, AMX whole tiles. CPUID and the system are asked, and a product is tried.
bool has_bfloat16_products();

/// Rows of bfloat16; the stride is even.
struct ConstRows16 {
  const std::uint16_t* data = nullptr;
  std::int64_t stride = 0;
};
struct Rows16 {
  std::uint16_t* data = nullptr;
  std::int64_t stride = 0;
};

/// Rounds rows to the nearest bfloat16; a 0 follows an odd width. Like the next function, only
/// where has_bfloat16_products().
void round_to_bfloat16(std::int64_t rows, std::int64_t width, ConstRows x, Rows16 y);

/// linear() of rows of bfloat16, as round_to_bfloat16() makes them, by weights of bfloat16. Sums
/// are float32.
void linear(const PackedWeights& weights, std::int64_t rows, ConstRows16 x, Rows y,
            const LinearEpilogue& epilogue);

/// LayerNorm's parameters, both (width).
struct LayerNormParameters {
  const float* weight = nullptr;
  const float* bias = nullptr;
  float epsilon = 1e-6F;
};

/// y = (x − mean) / √(variance + ε) · weight + bias, row by row; plus `added` if it is given. y
/// may be x.
void layer_norm(const LayerNormParameters& parameters, std::int64_t rows, std::int64_t width,
                ConstRows x, Rows y, ConstRows added = {});

/// Turns adjacent channels (a, b) of each row by the angle whose cosine and sine follow each other
/// in `turns`: (a cos − b sin, a sin + b cos). `width` is even; a turn row has as many numbers as a
/// row. In place.
void rotate_pairs(std::int64_t rows, std::int64_t width, Rows x, ConstRows turns);

}  // namespace sape2::kernels
