#pragma once

#include "sape2/study/comparison.h"

#include "study/run_images.h"
#include "study/run_result_file.h"

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace sape2::study {

class TeamQueue;

/// A run that has its place in a comparison's folder.
struct QueuedRun {
  std::string what;  ///< its name for people
  train::RunConfig config;
  std::filesystem::path folder;

  /// How it ended, if it did.
  std::optional<RunOutcome> outcome() const;
};

/// Brings runs to their end, together with other processes that do the same: the lock of a run's
/// folder tells who trains it, result.json that it has ended, and checkpoints where to go on. There
/// is nothing else to lose. Processes of a team that see different disks have a TeamQueue besides.
class RunQueue {
 public:
  RunQueue(RunImages& images, ComparisonObserver& observer, const train::StopRequested& stop,
           bool restart, TeamQueue* team = nullptr)
      : images_(images), observer_(observer), stop_(stop), restart_(restart), team_(team) {}

  /// Called when one more run has ended, here or elsewhere.
  using Ended = std::function<void()>;

  /// Returns true once every run has ended, false if it was stopped. Throws Error, before it trains
  /// anything, if a folder holds a run of another configuration or, unless runs may be restarted,
  /// one that lost its checkpoints.
  bool run(const std::vector<QueuedRun>& runs, const Ended& ended);

 private:
  void check_folders(const std::vector<QueuedRun>& runs) const;
  void restart_failed(const std::vector<QueuedRun>& runs) const;
  std::optional<RunOutcome> train(const QueuedRun& run, const std::function<void()>& begins) const;
  std::optional<RunOutcome> known_outcome(const QueuedRun& run) const;
  bool stopped() const { return stop_ && stop_(); }

  RunImages& images_;
  ComparisonObserver& observer_;
  const train::StopRequested& stop_;
  bool restart_;
  TeamQueue* team_;
};

}  // namespace sape2::study
