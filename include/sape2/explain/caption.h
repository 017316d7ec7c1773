#pragma once

#include "sape2/explain/colours.h"
#include "sape2/explain/look.h"
#include "sape2/explain/view.h"

#include <optional>
#include <string>
#include <vector>

/// What a map shows, in sentences with measured numbers: under a figure of `sape2 explain` and
/// beside a map of `sape2 serve`.
namespace sape2::explain {

/// The smallest and the largest value of the maps that a caption speaks of.
struct Extent {
  double least = 0;
  double most = 0;
};

/// The sentences, the one that matters most first: what raises attention and what lowers it, and by
/// how much; how far positions depend on the image.
std::vector<std::string> captions(const Look& look, What what, const Selection& selection,
                                  const Extent& extent);

/// How to read such a map, without numbers: "far patches gain attention". `logit_factor` takes its
/// values into the logits, if one number does.
std::string reading_text(ScaleKind kind, const std::optional<double>& logit_factor);

/// Where the grid is larger than the model's tables reach: what that does to the picture.
std::optional<std::string> clamp_warning(const Look& look);

/// A change of a logit and what it does to the weight: "+1.2 logits (×3.2)".
std::string effect_text(double logits);

/// What adding to a logit does to the weight: "×3.2".
std::string factor_text(double logits);

/// A number of few digits with a proper minus.
std::string number_text(double value, int digits = 3);

}  // namespace sape2::explain
