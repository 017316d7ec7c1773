#pragma once

#include "sape2/study/probes.h"

#include <string>

namespace sape2::study {

/// One file a probe.
ProbeResult probe_sizes(nn::ViT& model, const ProbeOptions& options);
ProbeResult probe_scale(nn::ViT& model, const ProbeOptions& options);
ProbeResult probe_translation(nn::ViT& model, const ProbeOptions& options);
ProbeResult probe_region(nn::ViT& model, const ProbeOptions& options);

/// Whether the model tells the classes of `shapes` apart.
bool knows_shapes(const nn::ViT& model);

/// Whether the model takes the images of `shapes` at all: three channels, square.
bool takes_shapes(const nn::ViT& model);

}  // namespace sape2::study
