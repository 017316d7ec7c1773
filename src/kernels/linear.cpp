#include "sape2/kernels/linear.h"

#include "sape2/base/error.h"

#include "cpu/linear/amx.h"
#include "cpu/linear/bfloat16.h"
#include "validate.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <string>

namespace sape2::kernels {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::int64_t kMostWeights = std::int64_t{1} << 40;

// A tile of weights is transposed at a time, so that neither side jumps through memory.
constexpr std::int64_t kStep = 32;

/// Rows of weights, (outputs, inputs), as a panel (inputs / group, kPanel, group).
template <typename Word, std::int64_t group>
void pack_panel(const std::byte* rows, std::int64_t outputs, std::int64_t inputs, Word* panel) {
  for (std::int64_t begin = 0; begin < inputs; begin += kStep) {
    const std::int64_t end = std::min(inputs, begin + kStep);
    for (std::int64_t o = 0; o < outputs; ++o) {
      const std::byte* row = rows + o * inputs * static_cast<std::int64_t>(sizeof(Word));
      for (std::int64_t i = begin; i < end; ++i) {
        std::memcpy(panel + (i / group * kPanel + o) * group + i % group,
                    row + i * static_cast<std::int64_t>(sizeof(Word)), sizeof(Word));
      }
    }
  }
}

void check_rows(const void* data, std::int64_t stride, std::int64_t width, const char* name) {
  check_given(data, name);
  if (stride < width) {
    throw Error("the stride of " + std::string(name) + " is " + std::to_string(stride) +
                "; expected at least the " + std::to_string(width) + " of a row");
  }
}

void check_rows16(const void* data, std::int64_t stride, std::int64_t width, const char* name) {
  check_rows(data, stride, width + width % 2, name);
  if (stride % 2) {
    throw Error("the stride of " + std::string(name) + " is " + std::to_string(stride) +
                "; expected an even number");
  }
}

void check_places(const PackedWeights& weights, Rows y, const LinearEpilogue& epilogue) {
  check_rows(y.data, y.stride, weights.outputs(), "y");
  if (epilogue.added) {
    check_rows(epilogue.added, epilogue.added_stride, weights.outputs(), "what is added");
  }
}

std::int64_t word_size(DType dtype) {
  return dtype == DType::float32 ? 4 : 2;
}

// Inputs of bfloat16 lie in pairs.
std::int64_t words_of_panel(DType dtype, std::int64_t inputs) {
  return (dtype == DType::float32 ? inputs : (inputs + 1) / 2 * 2) * kPanel;
}

void check_has_bfloat16() {
  if (!cpu_multiplies_bfloat16()) {
    throw Error("this CPU has no products of bfloat16; use rows of float32");
  }
}

}  // namespace

void PackedWeights::Free::operator()(void* memory) const {
  if (own) ::operator delete (memory, std::align_val_t{kAlignment});
}

std::size_t PackedWeights::packed_bytes(DType dtype, std::int64_t outputs, std::int64_t inputs) {
  if (dtype == DType::float16) throw Error("weights are float16; expected float32 or bfloat16");
  if (outputs < 1 || inputs < 1 || outputs > kMostWeights / inputs) {
    throw Error("weights are " + std::to_string(outputs) + "×" + std::to_string(inputs) +
                "; expected numbers from 1");
  }
  return static_cast<std::size_t>(panels_of(outputs) * words_of_panel(dtype, inputs) *
                                  word_size(dtype));
}

PackedWeights::PackedWeights(const void* weights, DType dtype, std::int64_t outputs,
                             std::int64_t inputs, void* place)
    : outputs_(outputs),
      inputs_(inputs),
      dtype_(dtype),
      bytes_(packed_bytes(dtype, outputs, inputs)) {
  check_given(weights, "weights");
  const bool wide = dtype == DType::float32;
  const std::int64_t panels = panels_of(outputs);
  const std::int64_t panel_words = words_of_panel(dtype, inputs);
  const std::int64_t size = word_size(dtype);
  memory_ = {place ? place : ::operator new (bytes_, std::align_val_t{kAlignment}),
             Free{place == nullptr}};
  if (outputs % kPanel || (!wide && inputs % 2)) std::memset(memory_.get(), 0, bytes_);
  for (std::int64_t p = 0; p < panels; ++p) {
    const std::int64_t first = p * kPanel, count = std::min(kPanel, outputs - first);
    const std::byte* rows = static_cast<const std::byte*>(weights) + first * inputs * size;
    if (wide) {
      pack_panel<std::uint32_t, 1>(rows, count, inputs,
                                   static_cast<std::uint32_t*>(memory_.get()) + p * panel_words);
    } else {
      pack_panel<std::uint16_t, 2>(rows, count, inputs,
                                   static_cast<std::uint16_t*>(memory_.get()) + p * panel_words);
    }
  }
}

void linear(const PackedWeights& weights, std::int64_t rows, ConstRows x, Rows y,
            const LinearEpilogue& epilogue) {
  if (rows == 0) return;
  check_given(weights.data(), "weights");
  check_rows(x.data, x.stride, weights.inputs(), "x");
  check_places(weights, y, epilogue);
  linear_rows(weights, rows, x, y, epilogue);
}

void fetch_rows(std::int64_t rows, std::int64_t width, ConstRows x) {
  constexpr std::int64_t kLineFloats = 64 / sizeof(float);
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* row = x.data + r * x.stride;
    for (std::int64_t c = 0; c < width; c += kLineFloats) __builtin_prefetch(row + c, 0, 2);
  }
}

bool has_bfloat16_products() {
  return cpu_multiplies_bfloat16();
}

void round_to_bfloat16(std::int64_t rows, std::int64_t width, ConstRows x, Rows16 y) {
  if (rows == 0) return;
  check_has_bfloat16();
  check_rows(x.data, x.stride, width, "x");
  check_rows16(y.data, y.stride, width, "y");
  round_rows(rows, width, x, y);
}

void linear(const PackedWeights& weights, std::int64_t rows, ConstRows16 x, Rows y,
            const LinearEpilogue& epilogue) {
  if (rows == 0) return;
  check_has_bfloat16();
  check_given(weights.data(), "weights");
  if (weights.dtype() != DType::bfloat16) {
    throw Error("the rows are bfloat16 and the weights float32; expected both of one type");
  }
  check_rows16(x.data, x.stride, weights.inputs(), "x");
  check_places(weights, y, epilogue);
  const auto multiply = cpu_multiplies_tiles() ? linear_amx_rows : linear_bfloat16_rows;
  multiply(weights, rows, x, y, epilogue);
}

void layer_norm(const LayerNormParameters& parameters, std::int64_t rows, std::int64_t width,
                ConstRows x, Rows y, ConstRows added) {
  if (rows == 0) return;
  check_given(parameters.weight, "LayerNorm's weight");
  check_given(parameters.bias, "LayerNorm's bias");
  check_rows(x.data, x.stride, width, "x");
  check_rows(y.data, y.stride, width, "y");
  if (added.data) check_rows(added.data, added.stride, width, "what is added");
  normalise_rows(parameters, rows, width, x, y, added);
}

void rotate_pairs(std::int64_t rows, std::int64_t width, Rows x, ConstRows turns) {
  if (rows == 0) return;
  if (width % 2) throw Error("the width is " + std::to_string(width) + "; expected an even number");
  check_rows(x.data, x.stride, width, "x");
  check_rows(turns.data, turns.stride, width, "turns");
  rotate_rows(rows, width, x, turns);
}

}  // namespace sape2::kernels
