#pragma once

#include "sape2/explain/view.h"
#include "sape2/ops/ops.h"

#include <ATen/core/Tensor.h>

namespace sape2::explain {

class Inspection;

struct ChosenPatches {
  Patch subject;
  Patch background;
};

/// One patch of the subject and one of the background, found from what the model made of the image:
/// the patches after the last layer are split into two groups of like content (2-means by cosine,
/// started from the image's middle and its border); the group that fills more of the border is the
/// background. Each group is represented by the patch that is most its own: nearest to its mean and
/// farthest from the other's. The same image and model always give the same patches.
ChosenPatches choose_patches(const Inspection& inspection);

/// The same from patches `[rows·cols, width]` of any model.
ChosenPatches choose_patches(const at::Tensor& patches, const ops::Grid& grid);

}  // namespace sape2::explain
