#pragma once

#include "sape2/explain/inspection.h"
#include "sape2/ops/inspect.h"

#include <vector>

namespace sape2::explain {

/// What an Inspection keeps of one layer.
struct Inspection::Layer {
  const nn::LayerEncoding* encoding;
  at::Tensor q, k;  // (1, h, N, d)
};

/// Patches by number, as the operators count them.
ops::PatchList numbers_of(const std::vector<Patch>& patches, const ops::Grid& grid);

}  // namespace sape2::explain
