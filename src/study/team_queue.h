#pragma once

#include "study/run_queue.h"

namespace sape2::dist {
class Team;
}

namespace sape2::study {

/// The runs of a comparison as a queue in the store of a team, for processes whose machines may
/// have no folder in common: who trains what, and what came of it.
class TeamQueue {
 public:
  explicit TeamQueue(dist::Team& team) : team_(team) {}

  /// Takes a run, unless another process that is alive has it.
  bool claim(const QueuedRun& run);

  /// Tells the others how a run ended whose folder is here.
  void publish(const QueuedRun& run);

  /// If another process has ended the run, puts its result and its log into the run's folder here,
  /// unless it is there already.
  void fetch(const QueuedRun& run);

 private:
  dist::Team& team_;
};

}  // namespace sape2::study
