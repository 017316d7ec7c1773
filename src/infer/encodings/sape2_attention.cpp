#include "infer/encodings/sape2_attention.h"

#include "infer/attention_rows.h"

namespace sape2::infer {

Sape2Attention::Sape2Attention(Sape2Parameters parameters) : parameters_(std::move(parameters)) {
  const Sape2Parameters& p = parameters_;
  encoding_.source = p.source;
  encoding_.span = p.span;
  encoding_.positions = p.ex.rows;
  encoding_.tables_per_head = p.tables_per_head;
  encoding_.gate_scale = p.gate_scale.data();
  encoding_.gate_offset = p.gate_offset.data();
  const bool both = p.source == kernels::Source::qk;
  const std::int64_t second = both ? p.ex.groups / 2 : 0;
  if (p.source != kernels::Source::k) encoding_.q_tables = {p.ex.row(0, 0), p.ey.row(0, 0)};
  if (p.source != kernels::Source::q) {
    encoding_.k_tables = {p.ex.row(second, 0), p.ey.row(second, 0)};
  }
}

void Sape2Attention::attend(const kernels::AttentionInputs& inputs,
                            const kernels::AttentionOutputs& outputs,
                            const kernels::Executor& executor) const {
  kernels::sape2_attention_forward(inputs, encoding_, parameters_.form, bias(), outputs, executor);
}

AttentionRows Sape2Attention::inspect(const QueriesAndKeys& tokens, Patches patches) const {
  const kernels::Shape& shape = tokens.shape;
  AxisVectors vectors;
  vectors.sets = parameters_.source == kernels::Source::qk ? 2 : 1;
  const std::int64_t lines = vectors.sets * shape.heads * shape.patches();
  vectors.x.resize(static_cast<std::size_t>(lines * shape.cols));
  vectors.y.resize(static_cast<std::size_t>(lines * shape.rows));
  kernels::sape2_vectors_forward({shape, kernels::DType::float32, tokens.q, tokens.k}, encoding_,
                                 {vectors.x.data(), vectors.y.data()}, kernels::SerialExecutor());
  AttentionRows rows = biased_rows(tokens, patches, vectors, parameters_.form, bias());
  if (parameters_.shows_positions) add_positions(rows, tokens, patches, encoding_);
  return rows;
}

}  // namespace sape2::infer
