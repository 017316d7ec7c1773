#include "sape2/base/error.h"
#include "sape2/nn/encoding_definition.h"

// Encodings that add vectors to the tokens, and the one that adds nothing.
namespace sape2::nn {
namespace {

void check_two_halves(const EncodingSpec&, const EncodingShape& shape) {
  if (shape.width % 2) {
    throw Error("encoding \"sinusoidal2d\" needs an even width, but the width is " +
                std::to_string(shape.width));
  }
}

std::optional<SilentStart> without_added_vectors(const EncodingSpec& spec) {
  return SilentStart{spec, {"pos_embed"}};
}

// The norms' factors, not the vectors: the norm of a vector near 0 is steep.
std::optional<SilentStart> without_norms(const EncodingSpec& spec) {
  return SilentStart{spec, {"norm_weight", "norm_bias"}};
}

}  // namespace

std::vector<EncodingDefinition> define_none() {
  return {{.name = "none",
           .summary = "no position information",
           .silent_start = [](const EncodingSpec& spec) {
             return std::optional(SilentStart{spec, {}});
           }}};
}

std::vector<EncodingDefinition> define_ape() {
  return {{.name = "ape",
           .summary = "a learnable vector per token, added to the embeddings",
           .silent_start = without_added_vectors}};
}

std::vector<EncodingDefinition> define_sinusoidal() {
  return {{.name = "sinusoidal",
           .summary = "fixed sines and cosines of the raster index, added to the embeddings"},
          {.name = "sinusoidal2d",
           .summary = "fixed sines and cosines, half of the channels of x, half of y",
           .check_shape = check_two_halves}};
}

std::vector<EncodingDefinition> define_lape() {
  return {
      {.name = "lape",
       .summary = "a learnable vector per token, added in every layer with a LayerNorm of its own",
       .silent_start = without_norms}};
}

}  // namespace sape2::nn
