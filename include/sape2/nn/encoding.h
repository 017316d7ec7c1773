#pragma once

#include "sape2/nn/encoding_definition.h"
#include "sape2/nn/parameter_scope.h"
#include "sape2/ops/gates.h"
#include "sape2/ops/inspect.h"
#include "sape2/ops/ops.h"

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

/// The one interface between position encodings and everything that uses them.
///
/// A model makes one Encoding, which may add something to the tokens at the input and makes one
/// LayerEncoding for each layer; that one runs the attention. Both hold parameters registered in
/// the scope they were made with. Grids may differ from the one trained at: encodings adapt by
/// themselves.
namespace sape2::nn {

class LayerEncoding;

/// Parameters by their names in the scope of the encoding.
using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// Sees what the attention of every layer sees, the first layer first: its encoding, and q and k
/// `[B, h, N, d]` before the encoding touches them.
using AttentionWatcher =
    std::function<void(const LayerEncoding&, const at::Tensor& q, const at::Tensor& k)>;

/// Is given the gates of every layer, the first layer first, and returns those to attend with.
using GateSubstitute = std::function<ops::Gates(const ops::Gates& own)>;

/// What travels with one forward pass.
struct ForwardPass {
  /// The grid of this pass.
  ops::Grid grid;
  /// Whether dropout acts.
  bool training = false;
  /// What one layer hands to the next; LaPE's positions.
  at::Tensor carried = {};
  /// Who looks on, or nobody.
  AttentionWatcher watcher = {};
  /// Who exchanges the gates of SaPE², or nobody.
  GateSubstitute gate_substitute = {};
  /// Stochastic depth: factors on what each branch adds, `[2·depth, B]`; undefined: all 1.
  at::Tensor depth_factors = {};
};

/// The part of an encoding that acts in one layer. By itself: attention that knows no positions.
class LayerEncoding {
 public:
  virtual ~LayerEncoding() = default;

  /// What q, k and v are projected from, given the normalised tokens `[B, N, D]`.
  virtual at::Tensor attention_input(const at::Tensor& tokens, ForwardPass& pass) const;

  /// Attention with positions; all `[B, h, N, d]`.
  virtual at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const ops::Grid& grid) const;

  /// The same of a projection's output: the thirds of `qkv` `[B, N, 3·h·d]` are q, k and v; gives
  /// `[B, N, h·d]`.
  virtual at::Tensor attend_packed(const at::Tensor& qkv, int64_t heads,
                                   const ops::Grid& grid) const;

  /// What that attention is made of, as chosen patches see it: its weights, and the bias, gates and
  /// positions where the encoding has them.
  virtual ops::AttentionRows inspect(const at::Tensor& q, const at::Tensor& k,
                                     const ops::Grid& grid, const ops::PatchList& patches) const;

  /// The parameters whose shape the grid decides, as a model trained at `grid` would have them: it
  /// then computes there what this one does.
  virtual NamedTensors resized(const ops::Grid& grid) const;

  /// The gates of SaPE²; nothing if the encoding has none.
  virtual std::optional<ops::Gates> gates(const at::Tensor& q, const at::Tensor& k,
                                          const ops::Grid& grid) const;

  /// attend() with these gates in place of its own; for encodings that have gates.
  virtual at::Tensor attend_with_gates(const at::Tensor& q, const at::Tensor& k,
                                       const at::Tensor& v, const ops::Grid& grid,
                                       const ops::Gates& gates) const;
};

/// The part of an encoding that acts once in a model. By itself: no positions at all.
class Encoding {
 public:
  virtual ~Encoding() = default;

  /// The embedded tokens `[B, N, D]` (prefix tokens first), with what this encoding adds to them.
  virtual at::Tensor embed(const at::Tensor& tokens, ForwardPass& pass) const;

  /// As LayerEncoding::resized(), of the parameters of the model as a whole.
  virtual NamedTensors resized(const ops::Grid& grid) const;

  /// The part that acts in one layer, its parameters registered in `scope`.
  virtual std::unique_ptr<LayerEncoding> make_layer(ParameterScope& scope) const;
};

/// The encoding that `spec` names, `+ape` included. Parameters of the model as a whole
/// (`pos_embed`) are registered in `scope`. Throws Error if it cannot serve a model of this
/// shape.
std::unique_ptr<Encoding> make_encoding(const EncodingSpec& spec, const EncodingShape& shape,
                                        ParameterScope& scope);

}  // namespace sape2::nn
