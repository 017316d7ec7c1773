#pragma once

#include "sape2/nn/vit.h"
#include "sape2/ops/ops.h"

#include "onnx/graph.h"

#include <ATen/core/Tensor.h>

#include <string>

namespace sape2::onnx {

/// A model on its way into a graph, for images of one size.
struct Export {
  const nn::ViT& model;
  ops::Grid grid;
  Graph& graph;

  const nn::ViTConfig& vit() const { return model.config().vit; }
  const nn::EncodingSpec& encoding() const { return model.config().encoding; }

  /// The model's parameter of that name in float32.
  at::Tensor parameter(const std::string& name) const;
  /// A constant of the graph with the numbers of a tensor.
  Value constant(const std::string& name, const at::Tensor& tensor) const;
};

/// q, k and v, each `[batch, heads, tokens, head size]`.
struct Heads {
  Value q, k, v;
};

/// Attention of one layer with the model's encoding, `[batch, heads, tokens, head size]`.
/// `parameters` is where the layer's encoding has its own: `blocks.0.attn.pos.`.
Value attention(const Export& to, const Heads& heads, const std::string& parameters);

/// Whether attention() knows the model's encoding.
bool knows_encoding(const nn::EncodingSpec& spec);

/// The bias of SaPE² `[batch, heads, patches, patches]`, gain and scale included.
Value sape2_bias(const Export& to, const Heads& heads, const std::string& parameters);

/// A bias of patches as one of all tokens: 0 for prefix tokens.
Value with_prefix(const Export& to, const Value& bias);

/// Soft positions that gates `[…, n, n]` add up to, clamped to a table of so many rows, and the row
/// of position 0.
struct Positions {
  Value value;
  std::int64_t origin = 0;
};
Positions positions_of(const Export& to, const Value& gates, bool between, std::int64_t n,
                       std::int64_t table_rows);

/// Values of a table `[…, rows]` at such positions, linearly between rows.
Value interpolated(Graph& graph, const Value& table, const Positions& positions,
                   std::int64_t table_rows);

/// From each patch to each, `[batch, heads, patches, patches]`, the entries of axis vectors
/// `[batch, heads, patches, cols]` and `[…, rows]` at the other's column and row.
Value direct_bias(const Export& to, const Value& ux, const Value& uy);

/// Axis vectors that products of `a` (q or k) with a row for each pair of places give: `x`
/// `[…, cols, cols, d]` and `y` `[…, rows, rows, d]`, with a leading axis of heads or none.
std::pair<Value, Value> contextual_vectors(const Export& to, const Value& a, const at::Tensor& x,
                                           const at::Tensor& y);

/// The patches of q or k in rows `[batch, heads, rows, cols, d]`.
Value patch_rows(const Export& to, const Value& a);

/// From normalised images to logits; adds all of it to the graph.
Value logits(const Export& to, const Value& images);

}  // namespace sape2::onnx
