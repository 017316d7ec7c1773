#include "infer/encoding.h"

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"

#include "infer/attention_rows.h"
#include "nn/definitions/named.h"

namespace sape2::infer {

// One line a file in encodings/: X(rope) stands for makers_of_rope().
#define SAPE2_INFER_ENCODING_FILES(X) \
  X(added)                            \
  X(lape)                             \
  X(rpe)                              \
  X(rope)                             \
  X(cope)                             \
  X(sape2)

#define SAPE2_DECLARE(file) std::vector<EncodingMaker> makers_of_##file();
SAPE2_INFER_ENCODING_FILES(SAPE2_DECLARE)
#undef SAPE2_DECLARE

namespace {

std::unique_ptr<Encoding> make_plain(std::string_view name, const EncodingParts& parts) {
#define SAPE2_PART(file) makers_of_##file,
  static const auto all = nn::joined<EncodingMaker>({SAPE2_INFER_ENCODING_FILES(SAPE2_PART)});
#undef SAPE2_PART
  if (const EncodingMaker* found = nn::find_named(all, name)) return found->make(parts);
  throw Error("encoding " + in_quotes(name) + " cannot be run without LibTorch");
}

/// `X+ape`: APE acts at the input, X everywhere.
class WithApe : public Encoding {
 public:
  WithApe(std::unique_ptr<Encoding> ape, std::unique_ptr<Encoding> other)
      : ape_(std::move(ape)), other_(std::move(other)) {}

  std::unique_ptr<LayerEncoding> make_layer(Weights& weights,
                                            const std::string& prefix) const override {
    return other_->make_layer(weights, prefix);
  }

  std::vector<float> added_to_embedding(const Grid& grid) const override {
    std::vector<float> sum = ape_->added_to_embedding(grid);
    const std::vector<float> more = other_->added_to_embedding(grid);
    for (std::size_t i = 0; i < more.size(); ++i) sum[i] += more[i];
    return sum;
  }

  std::vector<std::vector<float>> added_in_layers(const Grid& grid) const override {
    return other_->added_in_layers(grid);
  }

 private:
  std::unique_ptr<Encoding> ape_;
  std::unique_ptr<Encoding> other_;
};

}  // namespace

void GridAttention::attend(const kernels::AttentionInputs& inputs,
                           const kernels::AttentionOutputs& outputs,
                           const kernels::Executor& executor) const {
  kernels::plain_attention_forward(inputs, outputs, executor);
}

AttentionRows GridAttention::inspect(const QueriesAndKeys& tokens, Patches patches) const {
  return plain_rows(tokens, patches);
}

const float* GridAttention::turns(std::int64_t) const {
  return nullptr;
}

std::unique_ptr<GridAttention> LayerEncoding::on(const Grid&) const {
  return std::make_unique<GridAttention>();
}

std::unique_ptr<LayerEncoding> Encoding::make_layer(Weights&, const std::string&) const {
  return std::make_unique<LayerEncoding>();
}

std::vector<float> Encoding::added_to_embedding(const Grid&) const {
  return {};
}

std::vector<std::vector<float>> Encoding::added_in_layers(const Grid&) const {
  return {};
}

std::unique_ptr<Encoding> make_encoding(const nn::EncodingSpec& spec,
                                        const nn::EncodingShape& shape, std::int64_t depth,
                                        Weights& weights) {
  const EncodingParts parts{spec, shape, depth, weights};
  auto encoding = make_plain(spec.name(), parts);
  if (!spec.with_ape()) return encoding;
  return std::make_unique<WithApe>(make_plain("ape", parts), std::move(encoding));
}

}  // namespace sape2::infer
