#pragma once

#include "sape2/nn/vit_config.h"

namespace sape2::cli {

/// Multiplications and additions in the matrix products of one image: patch embedding, linear
/// layers, queries times keys, attention times values, head.
double product_operations(const nn::ViTConfig& vit);

/// The milliseconds that these take at least: with `threads` cores that do nothing but multiply and
/// add float32 in registers, measured now.
double product_milliseconds(const nn::ViTConfig& vit, int threads);

}  // namespace sape2::cli
