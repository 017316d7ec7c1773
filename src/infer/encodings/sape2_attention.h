#pragma once

#include "infer/encoding.h"
#include "infer/encodings/tables.h"

namespace sape2::infer {

/// All that SaPE² attention needs beside q, k and v.
struct Sape2Parameters {
  kernels::Source source = kernels::Source::k;
  kernels::Span span = kernels::Span::suffix;
  kernels::Form form = kernels::Form::distance;
  bool tables_per_head = false;
  Table ex, ey;                                // (sets · heads or 1, positions, head size)
  std::vector<float> gate_scale, gate_offset;  // (heads)
  std::vector<float> gain;                     // (heads)
  bool inside = true;
  bool shows_positions = true;  ///< whether gates and positions say anything
};

class Sape2Attention : public GridAttention {
 public:
  explicit Sape2Attention(Sape2Parameters parameters);

  void attend(const kernels::AttentionInputs& inputs, const kernels::AttentionOutputs& outputs,
              const kernels::Executor& executor) const override;
  AttentionRows inspect(const QueriesAndKeys& tokens, Patches patches) const override;

 private:
  kernels::Bias bias() const { return {parameters_.gain.data(), parameters_.inside}; }

  Sape2Parameters parameters_;
  kernels::Encoding encoding_;
};

}  // namespace sape2::infer
