#include "sape2/kernels/linear.h"

#include "sape2/base/error.h"

#include "cpu/linear_pass.h"
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

/// element(output, input, place) for every weight, `place` its index within the packed panel.
template <typename Word>
void pack_panel(const std::byte* rows, std::int64_t outputs, std::int64_t inputs,
                std::int64_t group, Word* panel) {
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

}  // namespace

void PackedWeights::Free::operator()(void* memory) const {
  ::operator delete (memory, std::align_val_t{kAlignment});
}

PackedWeights::PackedWeights(const void* weights, DType dtype, std::int64_t outputs,
                             std::int64_t inputs)
    : outputs_(outputs), inputs_(inputs), dtype_(dtype) {
  check_given(weights, "weights");
  if (dtype == DType::float16) throw Error("weights are float16; expected float32 or bfloat16");
  if (outputs < 1 || inputs < 1 || outputs > kMostWeights / inputs) {
    throw Error("weights are " + std::to_string(outputs) + "×" + std::to_string(inputs) +
                "; expected numbers from 1");
  }
  const bool wide = dtype == DType::float32;
  const std::int64_t panels = panels_of(outputs);
  const std::int64_t panel_words = wide ? inputs * kPanel : (inputs + 1) / 2 * 2 * kPanel;
  const std::int64_t size = wide ? 4 : 2;
  bytes_ = static_cast<std::size_t>(panels * panel_words * size);
  memory_.reset(::operator new (bytes_, std::align_val_t{kAlignment}));
  if (outputs % kPanel || (!wide && inputs % 2)) std::memset(memory_.get(), 0, bytes_);
  for (std::int64_t p = 0; p < panels; ++p) {
    const std::int64_t first = p * kPanel, count = std::min(kPanel, outputs - first);
    const std::byte* rows = static_cast<const std::byte*>(weights) + first * inputs * size;
    if (wide) {
      pack_panel(rows, count, inputs, 1,
                 static_cast<std::uint32_t*>(memory_.get()) + p * panel_words);
    } else {
      pack_panel(rows, count, inputs, 2,
                 static_cast<std::uint16_t*>(memory_.get()) + p * panel_words);
    }
  }
}

void linear(const PackedWeights& weights, std::int64_t rows, ConstRows x, Rows y,
            const LinearEpilogue& epilogue) {
  if (rows == 0) return;
  check_given(weights.data(), "weights");
  check_rows(x.data, x.stride, weights.inputs(), "x");
  check_rows(y.data, y.stride, weights.outputs(), "y");
  if (epilogue.added) {
    check_rows(epilogue.added, epilogue.added_stride, weights.outputs(), "what is added");
  }
  linear_rows(weights, rows, x, y, epilogue);
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
