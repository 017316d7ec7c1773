#pragma once

#include "sape2/explain/view.h"
#include "sape2/infer/inspection.h"

#include <span>

namespace sape2::explain {

class Look;

struct ChosenPatches {
  Patch subject;
  Patch background;
};

/// One patch of the subject and one of the background, found from what the model made of the image:
/// the patches after the last layer are split into two groups of like content (2-means by cosine,
/// started from the image's middle and its border); the group that fills more of the border is the
/// background. Each group is represented by the patch that is most its own: nearest to its mean and
/// farthest from the other's. The same image and model always give the same patches.
ChosenPatches choose_patches(const Look& look);

/// The same from patches (rows·cols, width) of any model.
ChosenPatches choose_patches(std::span<const float> patches, const infer::Grid& grid);

}  // namespace sape2::explain
