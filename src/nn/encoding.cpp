#include "sape2/nn/encoding.h"

#include "sape2/ops/training.h"

#include "nn/encodings/makers.h"

#include <algorithm>
#include <iterator>

namespace sape2::nn {
namespace {

/// `X+ape`: APE acts at the input, X everywhere.
class WithApe : public Encoding {
 public:
  WithApe(std::unique_ptr<Encoding> ape, std::unique_ptr<Encoding> other)
      : ape_(std::move(ape)), other_(std::move(other)) {}

  at::Tensor embed(const at::Tensor& tokens, ForwardPass& pass) const override {
    return other_->embed(ape_->embed(tokens, pass), pass);
  }

  NamedTensors resized(const ops::Grid& grid) const override {
    NamedTensors all = ape_->resized(grid);
    std::ranges::move(other_->resized(grid), std::back_inserter(all));
    return all;
  }

  std::unique_ptr<LayerEncoding> make_layer(ParameterScope& scope) const override {
    return other_->make_layer(scope);
  }

 private:
  std::unique_ptr<Encoding> ape_;
  std::unique_ptr<Encoding> other_;
};

}  // namespace

at::Tensor LayerEncoding::attention_input(const at::Tensor& tokens, ForwardPass&) const {
  return tokens;
}

at::Tensor LayerEncoding::attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                 const ops::Grid&) const {
  return ops::attention(q, k, v);
}

at::Tensor LayerEncoding::attend_packed(const at::Tensor& qkv, int64_t heads,
                                        const ops::Grid& grid) const {
  const auto [q, k, v] = ops::split_heads(qkv, heads);
  return attend(q, k, v, grid).transpose(1, 2).flatten(2);
}

ops::AttentionRows LayerEncoding::inspect(const at::Tensor& q, const at::Tensor& k,
                                          const ops::Grid& grid,
                                          const ops::PatchList& patches) const {
  return ops::attention_rows(q, k, grid, patches);
}

NamedTensors LayerEncoding::resized(const ops::Grid&) const {
  return {};
}

std::optional<ops::Gates> LayerEncoding::gates(const at::Tensor&, const at::Tensor&,
                                               const ops::Grid&) const {
  return std::nullopt;
}

at::Tensor LayerEncoding::attend_with_gates(const at::Tensor& q, const at::Tensor& k,
                                            const at::Tensor& v, const ops::Grid& grid,
                                            const ops::Gates&) const {
  return attend(q, k, v, grid);
}

at::Tensor Encoding::embed(const at::Tensor& tokens, ForwardPass&) const {
  return tokens;
}

NamedTensors Encoding::resized(const ops::Grid&) const {
  return {};
}

std::unique_ptr<LayerEncoding> Encoding::make_layer(ParameterScope&) const {
  return std::make_unique<LayerEncoding>();
}

std::unique_ptr<Encoding> make_encoding(const EncodingSpec& spec, const EncodingShape& shape,
                                        ParameterScope& scope) {
  check_encoding(spec, shape);
  auto encoding = encoding_maker(spec.name()).make(spec, shape, scope);
  if (!spec.with_ape()) return encoding;
  const EncodingSpec ape = EncodingSpec::parse("ape");
  return std::make_unique<WithApe>(make_encoding(ape, shape, scope), std::move(encoding));
}

}  // namespace sape2::nn
