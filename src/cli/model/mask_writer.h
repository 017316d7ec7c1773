#pragma once

#include "sape2/data/mask.h"
#include "sape2/explain/picture.h"

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

namespace sape2::cli {

/// Puts masks and overlays into a folder, under names of the images that no two share.
class MaskWriter {
 public:
  /// No folder: nothing is written. `read`: what the command reads, which is not written over.
  MaskWriter(const std::string& folder, std::int64_t classes,
             std::vector<std::filesystem::path> read);
  /// A folder that was made for masks, and got none, goes again.
  ~MaskWriter();
  MaskWriter(const MaskWriter&) = delete;
  MaskWriter& operator=(const MaskWriter&) = delete;

  /// The files written; none without a folder.
  std::vector<std::string> write(const explain::Picture& picture, const data::Image& mask);

 private:
  std::string name_for(const explain::Picture& picture);

  std::filesystem::path folder_;
  bool is_new_ = false;
  std::vector<data::MaskColour> colours_;
  std::vector<std::filesystem::path> read_;
  std::set<std::string> used_;
};

}  // namespace sape2::cli
