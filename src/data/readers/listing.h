#pragma once

#include "sape2/data/dataset.h"
#include "sape2/data/image.h"

#include <cstdint>
#include <filesystem>
#include <vector>

/// What readers of image files share: what lies in a folder, its splits, pixels into tensors.
namespace sape2::data {

/// What a folder holds but for hidden files, in the order of names, so that every machine sees the
/// same order.
std::vector<std::filesystem::path> children(const std::filesystem::path& folder);

/// An Error where a path cannot be followed.
bool is_folder(const std::filesystem::path& path);

/// The PNG and JPEG files of a folder. Notes and the like may lie beside them; images of other
/// formats are an Error.
std::vector<std::filesystem::path> image_files(const std::filesystem::path& folder);

/// `train` and `test` (or `val`) of a folder; both empty where it has no `train`.
struct SplitFolders {
  std::filesystem::path train, test;

  bool any() const { return !train.empty(); }
  const std::filesystem::path& of(Split split) const {
    return split == Split::train ? train : test;
  }
};
SplitFolders split_folders(const std::filesystem::path& folder);

/// Which of `count` ≥ 2 files belong to a split where the folder itself has none: at least one
/// each, drawn by the seed and the number of the group.
std::vector<std::int64_t> drawn_part(std::int64_t count, std::uint64_t group, Split split,
                                     const LoadOptions& options);

/// Refuses a share that leaves nothing to train or to test on.
void check_test_share(const LoadOptions& options);

/// Pixels of an image as channels × height × width.
void copy_as_planes(const Image& image, std::uint8_t* target);

}  // namespace sape2::data
