#pragma once

#include "sape2/explain/figure.h"
#include "sape2/explain/picture.h"
#include "sape2/study/prediction.h"

#include <filesystem>
#include <string>
#include <vector>

namespace sape2::explain {

/// An image and what a model sees in it, the most probable class first.
struct SeenPicture {
  Picture picture;
  std::vector<study::Prediction> predictions;
};

/// How many of the pictures whose class is known were recognised: "11 of 12 are right". Nothing if
/// no class is known.
std::string count_text(const std::vector<SeenPicture>& seen);

/// A contact sheet as the bytes of a file: each image over its predicted class and probability; if
/// its true class is known and another one, that class too. Throws Error if this build cannot draw
/// (Cairo is missing) or there are too many pictures for one page.
std::string render_prediction_sheet(const std::string& title, const std::vector<SeenPicture>& seen,
                                    FigureFormat format, double dots_per_inch = 144);

/// The same into a file, which appears only when it is whole.
void write_prediction_sheet(const std::filesystem::path& path, const std::string& title,
                            const std::vector<SeenPicture>& seen);

}  // namespace sape2::explain
