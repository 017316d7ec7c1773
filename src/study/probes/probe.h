#pragma once

#include "sape2/study/probes.h"

#include <string>

namespace sape2::study {

/// Images that go through a model at once.
inline constexpr int64_t kProbeBatch = 50;

/// A bias smaller than this is the rounding of an encoding that has none.
inline constexpr double kLeastBias = 1e-3;

/// One file a probe.
ProbeResult probe_sizes(nn::ViT& model, const ProbeOptions& options);
ProbeResult probe_scale(nn::ViT& model, const ProbeOptions& options);
ProbeResult probe_translation(nn::ViT& model, const ProbeOptions& options);
ProbeResult probe_region(nn::ViT& model, const ProbeOptions& options);
ProbeResult probe_gates(nn::ViT& model, const ProbeOptions& options);

/// Whether the model tells the classes of `shapes` apart.
bool knows_shapes(const nn::ViT& model);

/// Whether the model takes the images of `shapes` at all: three channels, square.
bool takes_shapes(const nn::ViT& model);

}  // namespace sape2::study
