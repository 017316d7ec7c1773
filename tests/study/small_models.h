#pragma once

#include "sape2/data/shapes.h"
#include "sape2/nn/vit.h"

#include <memory>
#include <string>

namespace sape2::study::test {

/// A model of two layers for `shapes`, its parameters drawn anew so that no table is zero.
inline std::unique_ptr<nn::ViT> small_model(const std::string& encoding) {
  const auto shapes = data::make_shapes({.split = data::Split::test, .count = 1});
  nn::ModelConfig config;
  config.vit.depth = 2;
  config.vit.width = 32;
  config.vit.heads = 2;
  config.vit.mlp_ratio = 1;
  config.encoding = nn::EncodingSpec::parse(encoding);
  config.class_names = shapes.dataset.class_names;
  config.vit.classes = shapes.dataset.classes();
  auto model = std::make_unique<nn::ViT>(config);
  const at::NoGradGuard no_grad;
  at::manual_seed(1);
  for (at::Tensor& parameter : model->parameters()) parameter.normal_(0, 0.3);
  model->eval();
  return model;
}

}  // namespace sape2::study::test
