#pragma once

#include "sape2/base/error.h"
#include "sape2/io/folder_lock.h"
#include "sape2/train/run_config.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace sape2::train {

/// Another process trains in the folder.
class FolderInUse : public Error {
 public:
  explicit FolderInUse(const std::filesystem::path& folder);
};

/// The folder of a run:
///
///     config.json               the complete configuration
///     log.jsonl                 one line every few steps and one an epoch (see run_log.h)
///     events.out.tfevents.*     the same for TensorBoard
///     curves.png                the same as a picture
///     best.safetensors          the model with the best accuracy on the test images
///     last.safetensors          the model as it is now
///     checkpoints/              all that is needed to go on; the last two are kept
///     aside-N/                  what was there before the Nth restart()
///
/// While the object lives, no other process can train in the folder: its attempt is FolderInUse.
class RunFolder {
 public:
  /// Makes the folder of a new run. One that holds a run already, or files of one, is refused.
  static RunFolder create(const std::filesystem::path& path, const RunConfig& config);

  /// Opens the folder of a run that was begun.
  static RunFolder open(const std::filesystem::path& path);

  /// Whichever of the two it takes, for those who come again with the same configuration.
  static RunFolder open_or_create(const std::filesystem::path& path, const RunConfig& config);

  /// Stands for the folder of a run that another process of the same training keeps: nothing of it
  /// can be read or written here.
  static RunFolder kept_elsewhere(const RunConfig& config);
  bool is_elsewhere() const { return !lock_; }

  /// The configuration of a run that was begun, whoever trains there.
  static RunConfig read_config(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  const RunConfig& config() const { return config_; }
  /// Trains on another device from now on.
  void use_device(const std::string& device) { config_.device = device; }

  std::filesystem::path log() const { return path_ / "log.jsonl"; }
  std::filesystem::path curves() const { return path_ / "curves.png"; }
  std::filesystem::path best() const { return path_ / "best.safetensors"; }
  std::filesystem::path last() const { return path_ / "last.safetensors"; }

  std::filesystem::path checkpoint(int64_t step) const;
  /// Those that exist, the newest first.
  std::vector<std::filesystem::path> checkpoints() const;
  /// To be called once a checkpoint is on the disk: removes all but the newest two.
  void keep_newest_checkpoints() const;

  /// Whether beginning at step 0 would throw a run away: no checkpoint is here, but a log, weights
  /// or refused checkpoints are. Not so for a run that was cut off before its first checkpoint.
  bool lost_checkpoints() const;
  /// Throws an Error that says so.
  void refuse_lost_checkpoints() const;

  /// Moves everything but config.json into a folder of its own, so that the run begins at step 0.
  /// Returns that folder.
  std::filesystem::path restart() const;

 private:
  RunFolder(std::filesystem::path path, RunConfig config, std::optional<io::FolderLock> lock);
  static RunFolder begin(const std::filesystem::path& path, const RunConfig& config,
                         io::FolderLock lock);
  static RunFolder go_on(const std::filesystem::path& path, io::FolderLock lock);

  std::vector<std::string> traces() const;
  void await_first_checkpoint() const;

  std::filesystem::path path_;
  RunConfig config_;
  std::optional<io::FolderLock> lock_;
};

}  // namespace sape2::train
