#pragma once

#include "sape2/data/loader.h"
#include "sape2/dist/group.h"

namespace sape2::train {

/// The part of a batch, or of images that are evaluated, that falls to this process: all of it
/// without a group.
inline data::BatchPart own_part(const dist::Group* group) {
  if (group == nullptr) return {};
  return {.index = group->rank(), .count = group->size()};
}

}  // namespace sape2::train
