#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace sape2::study {

/// Counts of a square matrix, row by row: row the true class, column the one predicted.
struct ConfusionMatrix {
  std::int64_t classes = 0;
  std::vector<std::int64_t> counts;
  std::vector<std::string> class_names;  ///< one a class, or empty
};

/// Draws the matrix as a PNG, every row in shares of its own sum. Throws Error if this build
/// cannot draw (the component "drawing") or the file cannot be written.
void draw_confusion(const ConfusionMatrix& matrix, const std::string& title,
                    const std::filesystem::path& file);

}  // namespace sape2::study
