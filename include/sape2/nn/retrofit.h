#pragma once

#include "sape2/nn/retrofit_config.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

/// A trained model with another position encoding, other classes or another image size.
namespace sape2::nn {

class ViT;

/// What became of a model's tensors.
struct Retrofit {
  std::int64_t kept = 0;            ///< taken over, resized if the grid or the patches differ
  std::vector<std::string> zeroed;  ///< of a new encoding, at 0 so that it has no effect yet
  std::vector<std::string> fresh;   ///< as in a new model
  /// The largest difference of the tokens after the last layer, over the largest of them, on images
  /// of noise; nothing if the two models do not take the same images.
  std::optional<double> difference;

  /// Whether the model computes what the trained one did, up to rounding; its head aside.
  bool unchanged() const { return difference && *difference < 1e-5; }
};

/// Gives a new model the weights of a trained one:
/// - a tensor that both have, by name and shape, is kept;
/// - those of an encoding that both have are resized for the model's grid;
/// - patch kernels are resized for its patches, so that an image enlarged as they are gives the
///   same tokens;
/// - those of an encoding that is new start at 0 if it has a silent start, else as in a new
///   model; a head for other classes starts as in a new model, too.
/// Both models are on the CPU. Throws Error if check_retrofit() does.
Retrofit retrofit(ViT& model, ViT& trained);

}  // namespace sape2::nn
