#pragma once

#include "sape2/data/augment.h"
#include "sape2/ops/augment.h"

#include <vector>

namespace sape2::data {

/// A recipe for the images of a batch, which are `sources` of the data set, drawn ahead for the
/// fused kernel. It makes the same images as augment(), bit for bit.
ops::AugmentPlan plan_batch(const std::vector<std::int64_t>& sources, std::int64_t height,
                            std::int64_t width, const AugmentOptions& options, const BatchKey& key);

/// What does not change from batch to batch.
ops::AugmentSettings augment_settings(std::int64_t channels, std::int64_t classes,
                                      const Normalisation& normalisation,
                                      const AugmentOptions& options);

}  // namespace sape2::data
