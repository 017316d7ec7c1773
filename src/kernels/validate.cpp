#include "validate.h"

#include "sape2/base/error.h"

#include <cmath>
#include <string>

namespace sape2::kernels {
namespace {

/// Offsets inside one head are counted in 32 bits.
constexpr std::int64_t kMaxTokens = std::int64_t{1} << 20;
/// Stage 1 holds the scores of a line with itself.
constexpr std::int64_t kMaxLine = std::int64_t{1} << 15;
constexpr std::int64_t kMaxPositions = std::int64_t{1} << 20;

void check_range(std::int64_t value, std::int64_t low, std::int64_t high, const char* name) {
  if (value >= low && value <= high) return;
  throw Error(std::string(name) + " is " + std::to_string(value) + "; expected a number from " +
              std::to_string(low) + " to " + std::to_string(high));
}

void check_type(DType dtype) {
  if (dtype == DType::float16)
    throw Error("dtype is float16, which only the CUDA kernels take; expected float32 or bfloat16");
}

void check_shape(const Shape& shape) {
  check_range(shape.images, 0, std::int64_t{1} << 40, "images");
  check_range(shape.heads, 1, std::int64_t{1} << 20, "heads");
  check_range(shape.rows, 1, kMaxTokens, "rows");
  check_range(shape.cols, 1, kMaxTokens, "cols");
  check_range(shape.prefix, 0, kMaxTokens, "prefix");
  check_range(shape.head_size, 1, kMaxHeadSize, "head_size");
  check_range(shape.tokens(), 1, kMaxTokens, "the number of tokens");
}

}  // namespace

void check_given(const void* pointer, const char* name) {
  if (pointer == nullptr) {
    throw Error(std::string(name) + " is null; expected its data");
  }
}

void check_inputs(const AttentionInputs& inputs) {
  check_type(inputs.dtype);
  check_shape(inputs.shape);
  check_given(inputs.q.data, "q");
  check_given(inputs.k.data, "k");
  check_given(inputs.v.data, "v");
  if (!std::isfinite(inputs.scale) || inputs.scale == 0.0F) {
    throw Error("scale is " + std::to_string(inputs.scale) +
                "; expected a finite number other than 0");
  }
}

void check_inputs(const VectorInputs& inputs) {
  check_type(inputs.dtype);
  check_shape(inputs.shape);
  check_given(inputs.q.data, "q");
  check_given(inputs.k.data, "k");
}

void check_outputs(const AttentionOutputs& outputs) {
  check_given(outputs.out.data, "out");
}

void check_saved(const AttentionSaved& saved) {
  check_given(saved.out.data, "out");
  check_given(saved.softmax, "softmax");
  check_given(saved.dout.data, "dout");
}

void check_bias(const Bias& bias) {
  check_given(bias.gain, "gain");
}

void check_vectors(const AxisVectors& vectors) {
  check_range(vectors.sets, 1, 2, "sets of axis vectors");
  check_given(vectors.x, "axis vectors x");
  check_given(vectors.y, "axis vectors y");
}

void check_encoding(const Encoding& encoding, const Shape& shape) {
  check_range(shape.rows, 1, kMaxLine, "rows");
  check_range(shape.cols, 1, kMaxLine, "cols");
  const bool between = encoding.span == Span::between;
  check_range(encoding.positions, between ? 1 : 2, kMaxPositions, "positions");
  if (between && encoding.positions % 2 == 0) {
    throw Error("positions is " + std::to_string(encoding.positions) +
                "; expected an odd number for the span between");
  }
  check_given(encoding.gate_scale, "gate_scale");
  check_given(encoding.gate_offset, "gate_offset");
  if (encoding.source != Source::k) {
    check_given(encoding.q_tables.x, "the x table of q");
    check_given(encoding.q_tables.y, "the y table of q");
  }
  if (encoding.source != Source::q) {
    check_given(encoding.k_tables.x, "the x table of k");
    check_given(encoding.k_tables.y, "the y table of k");
  }
}

void check_encoding(const CopeEncoding& encoding) {
  check_range(encoding.positions, 1, kMaxPositions, "positions");
  check_given(encoding.table, "the table");
}

}  // namespace sape2::kernels
