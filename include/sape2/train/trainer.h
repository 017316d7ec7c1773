#pragma once

#include "sape2/base/error.h"
#include "sape2/train/batch_source.h"
#include "sape2/train/run_folder.h"
#include "sape2/train/run_log.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace sape2::data {
struct Dataset;
}
namespace sape2::dist {
class Group;
}

namespace sape2::train {

/// The loss or the gradient stopped being a number: the run has no result, and would have none if
/// it were begun again.
class Diverged : public Error {
 public:
  using Error::Error;
};

/// Where a run stands after a step.
struct StepReport {
  int64_t epoch = 0;  ///< from 1
  int64_t epochs = 0;
  int64_t step = 0;  ///< steps done
  int64_t steps = 0;
  double loss = 0;
  double learning_rate = 0;
  double images_per_second = 0;
  double seconds_left = 0;
};

/// Who wants to know how a run goes on. Does nothing by itself.
class Observer {
 public:
  virtual ~Observer() = default;

  virtual void step_done(const StepReport&) {}
  virtual void epoch_done(const EpochRecord&, [[maybe_unused]] int64_t epochs) {}
  /// A trained model was tested before its first step.
  virtual void start_tested(const TestRecord&) {}
  /// Something worth a line: where a run goes on from, a checkpoint that was refused.
  virtual void note([[maybe_unused]] const std::string& sentence) {}
};

struct RunSummary {
  bool finished = false;  ///< false: asked to stop; a checkpoint was saved
  int64_t step = 0;
  int64_t steps = 0;
  double best = 0;                  ///< the task's main figure, of the best epoch
  std::optional<EpochRecord> last;  ///< the last epoch that ended
  double seconds = 0;               ///< all sessions together
  double checkpoint_share = 0;      ///< of this session's time, spent waiting for checkpoints
};

/// Asked after every step; true ends the run there, with a checkpoint.
using StopRequested = std::function<bool()>;

/// Trains the model of a run folder. A run that was cut off goes on from its newest checkpoint that
/// can be used; on the CPU, with the same number of threads, it ends with the same weights bit for
/// bit as one that was never interrupted.
///
/// With a group, all its processes train together. Rank 0 has the folder and is the only one that
/// reads and writes files; the others have RunFolder::kept_elsewhere(), and get weights and all
/// else from rank 0. A checkpoint is that of the run, not of a number of processes.
class Trainer {
 public:
  /// `source`, `test`, `observer` and `group` must outlive the trainer.
  Trainer(RunFolder folder, BatchSource& source, const data::Dataset& test, Observer& observer,
          dist::Group* group = nullptr);
  ~Trainer();

  /// Trains to the end, or until `stop` says so. Throws Diverged where the loss stops being a
  /// number and Error where a file cannot be written; what was saved before stays good.
  RunSummary run(const StopRequested& stop = {});

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sape2::train
