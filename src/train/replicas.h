#pragma once

#include "train/checkpoint.h"

#include <cstdint>

namespace sape2::dist {
class Group;
}

namespace sape2::train {

class TrainingStep;

/// Gives every process rank 0's weights, optimiser and progress.
void share_state(dist::Group& group, TrainingStep& training, Progress& progress);

/// Throws Error, naming a rank, unless all processes have the same weights, bit for bit.
void check_replicas(dist::Group& group, const TrainingStep& training, int64_t epoch);

}  // namespace sape2::train
