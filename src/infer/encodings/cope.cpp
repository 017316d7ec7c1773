#include "sape2/kernels/cope.h"

#include "infer/attention_rows.h"
#include "infer/encoding.h"
#include "nn/definitions/table_rows.h"

#include <cmath>

namespace sape2::infer {
namespace {

/// The same on every grid: positions count in raster order.
class CopeAttention : public GridAttention {
 public:
  explicit CopeAttention(const kernels::CopeEncoding& encoding) : encoding_(encoding) {}

  void attend(const kernels::AttentionInputs& inputs, const kernels::AttentionOutputs& outputs,
              const kernels::Executor& executor) const override {
    kernels::cope_attention_forward(inputs, encoding_, outputs, executor);
  }

  AttentionRows inspect(const QueriesAndKeys& tokens, Patches patches) const override {
    return cope_rows(tokens, patches, encoding_);
  }

 private:
  kernels::CopeEncoding encoding_;
};

class CopeLayer : public LayerEncoding {
 public:
  CopeLayer(const nn::EncodingSpec& spec, const nn::EncodingShape& shape, Weights& weights,
            const std::string& prefix)
      : rows_(nn::cope_table_rows(spec, shape)),
        root_(std::sqrt(static_cast<float>(shape.head_size()))),
        table_(weights.floats(prefix + "e", {rows_, shape.head_size()})) {
    // q·e is linear in e, so the division by √d can be taken there.
    if (spec.choice("bias") == "inside") {
      for (float& number : table_) number /= root_;
    }
  }

  std::unique_ptr<GridAttention> on(const Grid&) const override {
    return std::make_unique<CopeAttention>(
        kernels::CopeEncoding{rows_, table_.data(), 1.0F / root_});
  }

 private:
  std::int64_t rows_;
  float root_;
  std::vector<float> table_;  // (rows, head size)
};

}  // namespace

std::vector<EncodingMaker> makers_of_cope() {
  return {{"cope", make_per_layer<CopeLayer>}};
}

}  // namespace sape2::infer
