#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace sape2::nn {
class ViT;
}

namespace sape2::study {

/// What the attention of one layer does between patches; prefix tokens are left out. All
/// `[B, h, patches, patches]`, float32.
struct LayerView {
  at::Tensor attention;  ///< as the model attends, each row scaled to sum to one
  at::Tensor content;    ///< as it would without its encoding: softmax of q·k/√d
  /// What the encoding adds to q·k/√d, up to a constant for each query: every row has mean 0. It is
  /// found from the attention itself, so it exists for every encoding, rotary ones included.
  at::Tensor bias;
};

struct ModelView {
  std::vector<LayerView> layers;
  at::Tensor features;  ///< `[B, patches, width]`, after the last layer
};

/// Looks at normalised images `[B, channels, height, width]`.
ModelView view_model(nn::ViT& model, const at::Tensor& images);

}  // namespace sape2::study
