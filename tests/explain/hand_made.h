#pragma once

#include "sape2/data/image.h"
#include "sape2/nn/vit.h"

#include <ATen/ATen.h>

#include <memory>
#include <string>

namespace sape2::explain::test {

/// A model for images of 12×16 pixels in patches of 4, whose tables are written by hand: row p of a
/// table has p in every channel of x's and −p/2 of y's. All else is drawn from the seed.
inline std::shared_ptr<nn::ViT> hand_made_model(const std::string& encoding, int64_t registers = 0,
                                                const std::string& task = nn::kClassification) {
  nn::ModelConfig config;
  config.task = task;
  config.vit.image_size = {12, 16};
  config.vit.depth = 2;
  config.vit.width = 16;
  config.vit.heads = 2;
  config.vit.mlp_ratio = 1;
  config.vit.registers = registers;
  config.encoding = nn::EncodingSpec::parse(encoding);
  auto model = std::make_shared<nn::ViT>(config);
  const at::NoGradGuard no_grad;
  at::manual_seed(3);
  for (auto& item : model->named_parameters()) {
    at::Tensor value = item.value();
    const bool x = item.key().ends_with(".ex"), y = item.key().ends_with(".ey");
    if (x || y) {
      const at::Tensor rows = at::arange(value.size(-2), value.options()).unsqueeze(1);
      value.copy_((rows * (x ? 1.0 : -0.5)).expand_as(value));
    } else {
      value.normal_(0, 0.3);
    }
  }
  model->eval();
  return model;
}

inline data::Image some_image(int64_t height = 12, int64_t width = 16) {
  data::Image image{height, width, 3, {}};
  uint32_t state = 12345;
  for (int64_t i = 0; i < height * width * 3; ++i) {
    state = state * 1664525 + 1013904223;
    image.pixels.push_back(static_cast<uint8_t>(state >> 24));
  }
  return image;
}

}  // namespace sape2::explain::test
